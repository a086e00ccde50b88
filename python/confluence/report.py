"""The report of a run: its metrics beside the baselines, its curves, its contexts."""

from __future__ import annotations

import html
import io
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A longer curve is drawn as this many means of consecutive points.
_MAX_POINTS = 400
# The entries of a split's record that are not metrics.
_NOT_METRICS = ("loss", "seeds", "nulls", "baselines")


@dataclass(frozen=True, repr=False)
class Results:
    """The metrics of a run beside the baselines; a notebook shows them as a table.

    Attributes:
        step: The step whose checkpoint was scored.
        tasks: For each task the name of its leading metric, and for each split its metrics:
            `results.tasks["shop/churn"]["test"]["auroc"]`. The metrics of the baselines are under
            `"baselines"`.
    """

    step: int
    tasks: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of the run's `results.json`."""
        return {"step": self.step, "tasks": dict(self.tasks)}

    def __repr__(self) -> str:
        return f"step {self.step}\n{self.table()}"

    def _repr_html_(self) -> str:
        return f"<p>step {self.step}</p>\n<table>{_HEADER}\n{_html_rows(self)}\n</table>"

    def table(self) -> str:
        """Returns the metrics beside the baselines, as lines of text."""
        rows = [("task", "metric", "split", "confluence", "baselines")]
        for name, of_task in self.tasks.items():
            for split, scores in _splits(of_task):
                baselines = scores["baselines"]
                for metric in _metrics(scores, of_task["leading"]):
                    others = ", ".join(
                        f"{other} {found[metric]:.4f}" for other, found in baselines.items()
                    )
                    rows.append((name, metric, split, f"{scores[metric]:.4f}", others))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join(
            "  ".join([*(f"{row[c]:<{widths[c]}}" for c in range(4)), row[4]]) for row in rows
        )


def write(out: Path, results: Results, contexts: Mapping[str, str]) -> None:
    """Writes `curves.png` and `report.html` into a run's folder; `contexts` has a page per task."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    figure = _figure(records)
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
            header=_HEADER,
            rows=_html_rows(results),
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


def _html_rows(results: Results) -> str:
    lines = []
    for name, of_task in results.tasks.items():
        for split, scores in _splits(of_task):
            by_model = {"confluence": scores, **scores["baselines"]}
            for model, found in by_model.items():
                values = " ".join(
                    f"{metric} {value:.4f}"
                    for metric, value in found.items()
                    if isinstance(value, float)
                )
                cells = (name, split, model, values)
                lines.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    return "\n".join(f"<tr>{line}</tr>" for line in lines)


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


_HEADER = "<tr><th>task<th>split<th>model<th>metrics</tr>"
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
<table>{header}
{rows}
</table>
<h2>Curves</h2>
{curves}
<h2>A context of each task, as the model saw it</h2>
{contexts}
<h2>Configuration</h2>
<pre>{config}</pre>
</html>
"""
