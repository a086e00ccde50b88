"""The results of a run: its metrics beside the baselines, as a table and as JSON."""

from __future__ import annotations

import copy
import dataclasses
import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluence import boosting, calibration, hiding, masked, metrics
from confluence.tables import aligned, fitted, terminal_width

# The entries of a split's record that are not metrics.
_NOT_METRICS = (
    "loss", "seeds", "nulls", "interval", "calibration", "prediction_intervals", "coverage",
    "relations", "members", "baselines",
)  # fmt: skip
# The columns of the table, by the name of the boosting.
_BOOSTING = {
    boosting.ROW: "boosting: row",
    boosting.AGGREGATES: "+ aggregates",
    boosting.LABELS: "+ last labels",
}
# From these on a model is so good that it may have seen the label.
_TOO_GOOD = {"auroc": 0.99, "r2": 0.99}
_HEADER = "<tr><th>task<th>split<th>model<th>metrics<th>CPU s</tr>"


@dataclass(frozen=True, repr=False)
class Results:
    """The metrics of a run beside the baselines; a notebook shows them as a table.

    Attributes:
        step: The step whose checkpoint was scored; None for the mean of members.
        tasks: For each task the name of its leading metric, and for each split its metrics:
            `results.tasks["shop/churn"]["test"]["auroc"]`. The metrics of the baselines are under
            `"baselines"`, and the CPU seconds of boosting under `"cpu_seconds"` of the task. Under
            `"calibration"` are the seeds of a boolean or a number in bins by their prediction,
            under `"coverage"` the share of the labels of a number or a time that lie in their
            prediction intervals, under `"relations"`, if asked for, the leading metric with each
            relation hidden.
        cpu_seconds: What the training took, about, on all tasks together.
        stopped: A line for each training that ended early.
        members: The steps of the members whose mean was scored; their own leading metrics are under
            `"members"` of the split.
        periods: If asked for, the metrics of each task and split by the period of the observation.
        masked: For each task and pool and each split the mean loss at masked cells, and that of
            each type of cell; empty for a run without masks.
    """

    step: int | None
    tasks: Mapping[str, Any]
    cpu_seconds: float | None = None
    stopped: Sequence[str] = ()
    members: Sequence[int] = ()
    periods: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    masked: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """What nobody should overlook in these results, a line each."""
        beaten = [line for name, of_task in self.tasks.items() for line in _beaten(name, of_task)]
        perfect = [line for name, of_task in self.tasks.items() for line in _perfect(name, of_task)]
        drawn = [line for name, of_task in self.tasks.items() for line in _drawn(name, of_task)]
        held = [line for name, of_task in self.tasks.items() for line in _held(name, of_task)]
        return [*self.stopped, *beaten, *perfect, *drawn, *held]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Each metric of the model and of the baselines in a row, which makes a frame.

        The keys are task, split, model, metric and value.
        """
        return [
            {"task": name, "split": split, "model": model, "metric": metric, "value": found[metric]}
            for name, of_task in self.tasks.items()
            for split, scores in _splits(of_task)
            for model, found in {"confluence": scores, **scores["baselines"]}.items()
            for metric in _metrics(scores, of_task["leading"])
            if metric in found
        ]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Results:
        """Returns the results that `to_dict` made the content of, also when it was read as JSON."""
        return cls(
            content["step"],
            _with_nan(content["tasks"]),
            content["cpu_seconds"],
            content["stopped"],
            content["members"],
            # Results of earlier versions have none.
            masked=_with_nan(content.get("masked", {})),
        )

    def with_more(self, other: Results) -> Results | None:
        """Returns these results with what a later evaluation of the same parameters adds to them.

        These are intervals and coverage where there are none yet, and the metrics without each
        relation. None if it adds nothing.
        """
        if (self.step, list(self.members)) != (other.step, list(other.members)):
            return None
        tasks = copy.deepcopy(dict(self.tasks))
        for name, of_task in other.tasks.items():
            for split, scores in _splits(of_task):
                ours = tasks.get(name, {}).get(split, {})
                for part in ("prediction_intervals", "coverage", "relations"):
                    if part in scores and (part == "relations" or part not in ours):
                        ours[part] = scores[part]
        return None if tasks == self.tasks else dataclasses.replace(self, tasks=tasks)

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of the run's `results.json`."""
        return {
            "step": self.step,
            "members": list(self.members),
            "stopped": list(self.stopped),
            "cpu_seconds": self.cpu_seconds,
            "remarks": self.remarks,
            "tasks": dict(self.tasks),
            "masked": dict(self.masked),
        }

    def __repr__(self) -> str:
        return f"{self._model()}\n{self.table(terminal_width())}"

    def _repr_html_(self) -> str:
        tables = "\n".join(
            [html_table(self), calibration.html_tables(self.tasks), hiding.html_tables(self.tasks)]
        )
        return f"<p>{self._model()}</p>\n{tables}{_period_tables(self.periods)}"

    def _model(self) -> str:
        if not self.members:
            return f"step {self.step}"
        return f"mean of {len(self.members)} members, steps {', '.join(map(str, self.members))}"

    def table(self, width: int | None = None) -> str:
        """Returns the metrics beside the baselines, and the remarks, as lines of text.

        A line for each metric; where the width has no room for it, a table for each split instead,
        with a line for each model.
        """
        lines = self._by_metric()
        if width is not None and any(len(line) > width for line in lines):
            lines = self._by_model(width)
        return "\n".join([*lines, *masked.table(self.masked), *self.remarks])

    def _by_metric(self) -> list[str]:
        others = _boosting_columns(self.tasks)
        header = ["task", "metric", "split", "confluence", "95 %", *others.values(), "baselines"]
        rows = [(*header, "members")] if self.members else [tuple(header)]
        for name, of_task in self.tasks.items():
            for split, scores in _splits(of_task):
                for metric in _metrics(scores, of_task["leading"]):
                    boosted = _boosting_cells(of_task, scores, metric, others)
                    repeated = ", ".join(
                        f"{other} {found[metric]:.4f}"
                        for other, found in scores["baselines"].items()
                        if other not in _BOOSTING
                    )
                    spread = _interval(scores) if metric == of_task["leading"] else ""
                    row = (name, metric, split, f"{scores[metric]:.4f}", spread, *boosted, repeated)
                    each = _members(scores) if metric == of_task["leading"] else ()
                    rows.append((*row, " ".join(f"{of:.4f}" for _, of in each)))
            if of_task["cpu_seconds"]:
                seconds = [_seconds(of_task["cpu_seconds"].get(other)) for other in others]
                rows.append((name, "CPU s", "", _seconds(self.cpu_seconds), "", *seconds))
        return aligned(rows) if self.tasks else []

    def _by_model(self, width: int) -> list[str]:
        lines: list[str] = []
        for name, of_task in self.tasks.items():
            leading = of_task["leading"]
            seconds = {"confluence": self.cpu_seconds, **of_task["cpu_seconds"]}
            for split, scores in _splits(of_task):
                columns = _metrics(scores, leading)
                if not columns:
                    continue
                each = {f"member {at}": {leading: of} for at, of in _members(scores)}
                rows = [["model", *columns, *(["CPU s"] if of_task["cpu_seconds"] else [])]]
                for model, found in {"confluence": scores, **each, **scores["baselines"]}.items():
                    cells = [f"{found[of]:.4f}" if of in found else "-" for of in columns]
                    cells += [_seconds(seconds.get(model))] if of_task["cpu_seconds"] else []
                    rows.append([model, *cells])
                if of_task["boosting"] not in ("done", "off"):
                    rows.append(["boosting", of_task["boosting"]])
                spread = _interval(scores)
                title = f"{name}, {split}" + (f"; 95 % of {leading}: {spread}" if spread else "")
                lines += [*([""] if lines else []), title, *fitted(rows, width)]
        return lines


def _with_nan(content: Any) -> Any:
    """Returns NaN for null, as JSON has it; only a calibration has nulls of its own."""
    if isinstance(content, Mapping):
        return {
            key: value if key == "calibration" else _with_nan(value)
            for key, value in content.items()
        }
    if isinstance(content, list):
        return [_with_nan(value) for value in content]
    return math.nan if content is None else content


def _interval(scores: Mapping[str, Any]) -> str:
    """Returns the interval of the leading metric; runs of earlier versions have none."""
    low, high = scores.get("interval", (math.nan, math.nan))
    return "" if math.isnan(low) else f"{low:.4f} to {high:.4f}"


def _members(scores: Mapping[str, Any]) -> Iterable[tuple[int, float]]:
    """Returns the leading metric of each member, with its number."""
    return enumerate(scores.get("members", []))


def _beaten(name: str, of_task: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line if the best baseline is as good as the model on the test split."""
    scores, leading = of_task.get("test", {}), of_task["leading"]
    others = {
        other: found[leading]
        for other, found in scores.get("baselines", {}).items()
        if not math.isnan(found[leading])
    }
    if not others or math.isnan(scores.get(leading, math.nan)):
        return
    best = max(others, key=lambda other: metrics.worth(leading, others[other]))
    if metrics.worth(leading, scores[leading]) <= metrics.worth(leading, others[best]):
        yield (
            f"{name}: confluence does not beat the best baseline on the test split: {leading} "
            f"{scores[leading]:.4f}, {others[best]:.4f} ({best})"
        )


def _perfect(name: str, of_task: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line if the model is so good that it may have seen the label."""
    for split in ("test", "val"):
        for metric in _TOO_GOOD:
            value = of_task.get(split, {}).get(metric, math.nan)
            if value >= _TOO_GOOD[metric]:
                task = name.split("/")[-1]
                yield (
                    f"{name}: {metric} {value:.4f} on the {split} split may be too good: run "
                    f"headwater audit STORE --task {task!r}"
                )
                return


def _drawn(name: str, of_task: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line if the candidates are a sample, which makes metrics higher."""
    if "drawn" in of_task:
        yield (
            f"{name}: candidates are ranked among the true ones and {of_task['drawn']} drawn; "
            "among all rows the figures would be lower"
        )


def _held(name: str, of_task: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line on the prediction intervals: what they hold on the test split, or why not."""
    if "coverage" in of_task.get("test", {}):
        level, share = (100 * of_task["test"]["coverage"][part] for part in ("level", "share"))
        yield f"{name}: {level:.0f} % intervals hold {share:.1f} % of the test labels"
    # Results of earlier versions have no such entry.
    if of_task.get("no_intervals"):
        yield f"{name}: no intervals: {of_task['no_intervals']}"


def _boosting_columns(tasks: Mapping[str, Any]) -> dict[str, str]:
    """Returns the columns of boosting that any task has, by name; one if it could not run."""
    names = {name for of_task in tasks.values() for name in of_task["cpu_seconds"]}
    if names:
        return {name: column for name, column in _BOOSTING.items() if name in names}
    is_missing = any(of_task["boosting"] != "off" for of_task in tasks.values())
    return {boosting.ROW: "boosting"} if is_missing else {}


def _boosting_cells(
    of_task: Mapping[str, Any], scores: Mapping[str, Any], metric: str, names: Mapping[str, str]
) -> list[str]:
    """Returns the metric of each boosting, or why there is none."""
    reason = "-" if of_task["boosting"] == "done" else of_task["boosting"]
    found = scores["baselines"]
    return [f"{found[name][metric]:.4f}" if name in found else reason for name in names]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _metrics(scores: Mapping[str, Any], leading: str) -> list[str]:
    """Returns the metrics of a split, the leading one first; none if nothing was scored."""
    others = [name for name in scores if name not in (leading, *_NOT_METRICS)]
    return [leading, *others] if leading in scores else []


def _splits(of_task: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, of_task[name]) for name in ("train", "val", "test") if name in of_task]


def _period_tables(of_tasks: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Returns a table of the metrics by period for each task and split."""
    found = []
    for name, periods in of_tasks.items():
        metrics_of = list(next(iter(periods.values()), {}))
        heads = "".join(f"<th>{html.escape(head)}" for head in ["period", *metrics_of])
        lines = [
            f"<tr><td>{html.escape(period)}" + "".join(f"<td>{scores[of]:.4g}" for of in metrics_of)
            for period, scores in periods.items()
        ]
        caption = f"<caption>{html.escape(name)}</caption>"
        found.append(f"<table>{caption}<tr>{heads}</tr>\n{chr(10).join(lines)}\n</table>")
    return "\n".join(found)


def html_table(results: Results) -> str:
    """Returns the remarks, and a row for each model, with its CPU seconds after its metrics."""
    rows = []
    for name, of_task in results.tasks.items():
        seconds = {"confluence": results.cpu_seconds, **of_task["cpu_seconds"]}
        leading = of_task["leading"]
        for split, scores in _splits(of_task):
            for model, found in {"confluence": scores, **scores["baselines"]}.items():
                values = [f"{k} {v:.4f}" for k, v in found.items() if isinstance(v, float)]
                rows.append((name, split, model, " ".join(values), _seconds(seconds.get(model))))
            for number, value in _members(scores):
                rows.append((name, split, f"member {number}", f"{leading} {value:.4f}", "-"))
            if of_task["boosting"] not in ("done", "off"):
                rows.append((name, split, "boosting", of_task["boosting"], "-"))
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    table = "\n".join(f"<tr>{line}</tr>" for line in lines)
    remarks = "".join(f"<p>{html.escape(line)}</p>\n" for line in results.remarks)
    of_tasks = f"<table>{_HEADER}\n{table}\n</table>" if rows else ""
    of_masked = html.escape("\n".join(masked.table(results.masked)))
    return remarks + of_tasks + (f"<pre>{of_masked}</pre>" if of_masked else "")
