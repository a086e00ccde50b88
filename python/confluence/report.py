"""The report of a run: its metrics beside the baselines, its curves, its contexts."""

from __future__ import annotations

import html
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluence import boosting, metrics

# A longer curve is drawn as this many means of consecutive points.
_MAX_POINTS = 400
# The entries of a split's record that are not metrics.
_NOT_METRICS = ("loss", "seeds", "nulls", "baselines")
# The columns of the table, by the name of the boosting.
_BOOSTING = {
    boosting.ROW: "boosting: row",
    boosting.AGGREGATES: "+ aggregates",
    boosting.LABELS: "+ last labels",
}


@dataclass(frozen=True, repr=False)
class Results:
    """The metrics of a run beside the baselines; a notebook shows them as a table.

    Attributes:
        step: The step whose checkpoint was scored.
        tasks: For each task the name of its leading metric, and for each split its metrics:
            `results.tasks["shop/churn"]["test"]["auroc"]`. The metrics of the baselines are under
            `"baselines"`, and the CPU seconds of boosting under `"cpu_seconds"` of the task.
        cpu_seconds: What the training took, about, on all tasks together.
    """

    step: int
    tasks: Mapping[str, Any]
    cpu_seconds: float | None = None

    @property
    def remarks(self) -> list[str]:
        """What nobody should overlook in these results, a line each."""
        return [line for name, of_task in self.tasks.items() for line in _beaten(name, of_task)]

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of the run's `results.json`."""
        return {
            "step": self.step,
            "cpu_seconds": self.cpu_seconds,
            "remarks": self.remarks,
            "tasks": dict(self.tasks),
        }

    def __repr__(self) -> str:
        return f"step {self.step}\n{self.table()}"

    def _repr_html_(self) -> str:
        return f"<p>step {self.step}</p>\n{_html_table(self)}"

    def table(self) -> str:
        """Returns the metrics beside the baselines, and the remarks, as lines of text."""
        others = _boosting_columns(self.tasks)
        rows = [("task", "metric", "split", "confluence", *others.values(), "baselines")]
        for name, of_task in self.tasks.items():
            for split, scores in _splits(of_task):
                for metric in _metrics(scores, of_task["leading"]):
                    boosted = _boosting_cells(of_task, scores, metric, others)
                    repeated = ", ".join(
                        f"{other} {found[metric]:.4f}"
                        for other, found in scores["baselines"].items()
                        if other not in _BOOSTING
                    )
                    value = f"{scores[metric]:.4f}"
                    rows.append((name, metric, split, value, *boosted, repeated))
            if of_task["cpu_seconds"]:
                seconds = [_seconds(of_task["cpu_seconds"].get(other)) for other in others]
                rows.append((name, "CPU s", "", _seconds(self.cpu_seconds), *seconds, ""))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
        lines = [
            "  ".join([*(f"{row[c]:<{width}}" for c, width in enumerate(widths)), row[-1]]).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *self.remarks])


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


def read_log(out: Path) -> list[dict[str, Any]]:
    """Returns the records of a run's `metrics.jsonl`; none if there is no such file."""
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def training_cpu_seconds(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Returns about how long the steps took, from a run's log; None if no speed was recorded."""
    speeds = [record["speed"] for record in records if "speed" in record]
    of_steps = [speed["step_cpu_seconds"] for speed in speeds if "step_cpu_seconds" in speed]
    steps = max((record["step"] for record in records), default=0)
    return steps * sum(of_steps) / len(of_steps) if of_steps else None


def write(out: Path, results: Results, contexts: Mapping[str, str]) -> None:
    """Writes `curves.png` and `report.html` into a run's folder; `contexts` has a page per task."""
    figure = _figure(read_log(out))
    figure.savefig(out / "curves.png", dpi=120)
    # The layout is final: computing it again takes as long as drawing.
    figure.set_layout_engine("none")
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    svg = buffer.getvalue()
    config = html.escape((out / "config.toml").read_text())
    (out / "report.html").write_text(
        _PAGE.format(
            title=html.escape(out.resolve().name),
            metrics=_html_table(results),
            curves=svg[svg.index("<svg") :],
            contexts="\n".join(
                f'<h3>{html.escape(task)}</h3>\n<iframe src="{page}" loading="lazy"></iframe>'
                for task, page in contexts.items()
            ),
            config=config,
        )
    )


def _metrics(scores: Mapping[str, Any], leading: str) -> list[str]:
    """Returns the metrics of a split, the leading one first; none if nothing was scored."""
    others = [name for name in scores if name not in (leading, *_NOT_METRICS)]
    return [leading, *others] if leading in scores else []


def _splits(of_task: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, of_task[name]) for name in ("train", "val", "test") if name in of_task]


def _html_table(results: Results) -> str:
    """Returns the remarks, and a row for each model, with its CPU seconds after its metrics."""
    rows = []
    for name, of_task in results.tasks.items():
        seconds = {"confluence": results.cpu_seconds, **of_task["cpu_seconds"]}
        for split, scores in _splits(of_task):
            for model, found in {"confluence": scores, **scores["baselines"]}.items():
                values = [f"{k} {v:.4f}" for k, v in found.items() if isinstance(v, float)]
                rows.append((name, split, model, " ".join(values), _seconds(seconds.get(model))))
            if of_task["boosting"] not in ("done", "off"):
                rows.append((name, split, "boosting", of_task["boosting"], "-"))
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    table = "\n".join(f"<tr>{line}</tr>" for line in lines)
    remarks = "".join(f"<p>{html.escape(line)}</p>\n" for line in results.remarks)
    return f"{remarks}<table>{_HEADER}\n{table}\n</table>"


def _figure(records: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    train, val = defaultdict(list), defaultdict(list)
    norms, waits = [], []
    for record in records:
        step = record["step"]
        if "speed" in record:
            waits.append((step, 100 * record["speed"]["data_wait"]))
        elif "split" in record:
            val[record["task"]].append((step, _number(record["loss"])))
        else:
            train[record["task"]].append((step, _number(record["loss"])))
            norms.append((step, _number(record["gradient_norm"])))
    figure = Figure(figsize=(10, 7), layout="constrained")
    losses, validation, norm, wait = figure.subplots(2, 2).flat
    for axes, curves, title in (
        (losses, train, "loss, train"),
        (validation, val, "loss, validation"),
        (norm, {"": norms}, "gradient norm"),
        (wait, {"": waits}, "waiting for data, % of the time"),
    ):
        axes.set_title(title)
        axes.set_xlabel("step")
        for name, points in sorted(curves.items()):
            axes.plot(*_thinned(points), label=name, marker="." if len(points) < 50 else None)
        if any(curves):
            axes.legend(fontsize="small")
    return figure


def _number(value: float | None) -> float:
    """Returns the number of a log record, NaN for null."""
    return math.nan if value is None else value


def _thinned(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    size = -(-len(points) // _MAX_POINTS) or 1
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    steps = [group[-1][0] for group in groups]
    return steps, [sum(value for _, value in group) / len(group) for group in groups]


_HEADER = "<tr><th>task<th>split<th>model<th>metrics<th>CPU s</tr>"
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }}
table {{ border-collapse: collapse; }}
td, th {{ border-bottom: 1px solid #ccc; padding: .2em .8em .2em 0; text-align: left; }}
svg {{ height: auto; max-width: 100%; }}
iframe {{ border: 1px solid #ccc; height: 50em; width: 100%; }}
pre {{ background: #f4f4f4; overflow: auto; padding: 1em; }}
</style>
<h1>{title}</h1>
<h2>Metrics</h2>
{metrics}
<h2>Curves</h2>
{curves}
<h2>A context of each task, as the model saw it</h2>
{contexts}
<h2>Configuration</h2>
<pre>{config}</pre>
</html>
"""
