"""The page of a run: its curves and its metrics beside the baselines."""

from __future__ import annotations

import html
import io
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Points of a curve at most; longer ones are means over stretches.
_POINTS = 400
# What of a split's record is no metric.
_NO_METRICS = ("loss", "seeds", "nulls", "baselines")


def write(out: Path, results: Mapping[str, Any], contexts: Mapping[str, str]) -> None:
    """Writes `curves.png` and `report.html` into a run's folder, which has pages of contexts."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    figure = _figure(records)
    figure.savefig(out / "curves.png", dpi=120)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    svg = drawn.getvalue()
    config = html.escape((out / "config.toml").read_text())
    (out / "report.html").write_text(
        _PAGE.format(
            title=html.escape(out.resolve().name),
            table=_table(results),
            curves=svg[svg.index("<svg") :],
            contexts="\n".join(
                f'<h3>{html.escape(task)}</h3>\n<iframe src="{page}" loading="lazy"></iframe>'
                for task, page in contexts.items()
            ),
            config=config,
        )
    )


def table(results: Mapping[str, Any]) -> str:
    """Returns the metrics beside the baselines, as lines of text."""
    rows = [("task", "metric", "split", "confluence", "baselines")]
    for name, of_task in results["tasks"].items():
        for split, scored in _splits(of_task):
            baselines = scored["baselines"]
            for metric in _metrics(scored, of_task["leading"]):
                others = ", ".join(
                    f"{other} {found[metric]:.4f}" for other, found in baselines.items()
                )
                rows.append((name, metric, split, f"{scored[metric]:.4f}", others))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(f"{row[c]:<{widths[c]}}" for c in range(4)), row[4]]) for row in rows
    )


def _metrics(scored: Mapping[str, Any], leading: str) -> list[str]:
    """The metrics of a split, the leading one first; none where there was nothing to score."""
    others = [name for name in scored if name not in (leading, *_NO_METRICS)]
    return [leading, *others] if leading in scored else []


def _splits(of_task: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, of_task[name]) for name in ("train", "val", "test") if name in of_task]


def _table(results: Mapping[str, Any]) -> str:
    lines = []
    for name, of_task in results["tasks"].items():
        for split, scored in _splits(of_task):
            ours = {"confluence": scored, **scored["baselines"]}
            for who, found in ours.items():
                values = " ".join(
                    f"{metric} {value:.4f}"
                    for metric, value in found.items()
                    if isinstance(value, float)
                )
                cells = (name, split, who, values)
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
        (norm, {"": norms}, "norm of the gradient"),
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
    """The number that the log has; what is null there was none."""
    return math.nan if value is None else value


def _thinned(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    size = -(-len(points) // _POINTS) or 1
    stretches = [points[at : at + size] for at in range(0, len(points), size)]
    steps = [stretch[-1][0] for stretch in stretches]
    return steps, [sum(value for _, value in stretch) / len(stretch) for stretch in stretches]


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
<table><tr><th>task<th>split<th>who<th>metrics</tr>
{table}
</table>
<h2>Curves</h2>
{curves}
<h2>A context of each task, as the model saw it</h2>
{contexts}
<h2>Configuration</h2>
<pre>{config}</pre>
</html>
"""
