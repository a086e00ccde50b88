"""The report of a run: its metrics beside the baselines, its curves, its contexts."""

from __future__ import annotations

import html
import io
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluence import calibration, hiding
from confluence.batch import TYPE_NAMES
from confluence.results import Results, html_table
from headwater._headwater import read_file

# A longer curve is drawn as this many means of consecutive points.
_MAX_POINTS = 400


def training_cpu_seconds(folders: Sequence[Path]) -> float | None:
    """Returns about how long the steps of these runs took; None if no speed was recorded."""
    found = [seconds for out in folders if (seconds := _cpu_seconds(read_log(out))) is not None]
    return sum(found) if found else None


def _cpu_seconds(records: Sequence[Mapping[str, Any]]) -> float | None:
    speeds = [record["speed"] for record in records if "speed" in record]
    of_steps = [speed["step_cpu_seconds"] for speed in speeds if "step_cpu_seconds" in speed]
    steps = max((record["step"] for record in records), default=0)
    return steps * sum(of_steps) / len(of_steps) if of_steps else None


def early_stops(folders: Sequence[Path]) -> list[str]:
    """Returns the lines on trainings that ended early, from the results of these runs."""
    found = []
    for out in folders:
        path = out / "results.json"
        stopped = json.loads(read_file(path)).get("stopped", []) if path.exists() else []
        prefix = f"{out.name} " if len(folders) > 1 else ""
        found += [prefix + line for line in stopped]
    return found


def read_log(out: Path) -> list[dict[str, Any]]:
    """Returns the records of a run's `metrics.jsonl`; none if there is no such file."""
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in read_file(path).splitlines()] if path.exists() else []


def context_pages(tasks: Sequence[str]) -> dict[str, str]:
    """Returns the name of the page with a context of each task, in the run's folder."""
    return {task: f"context-{number}.html" for number, task in enumerate(tasks)}


def write(out: Path, results: Results, tasks: Sequence[str], trained: Sequence[Path]) -> None:
    """Writes `curves.png` and `report.html` into a run's folder, beside the contexts' pages.

    `trained` has the folders of the members; that of the run itself if it has none.
    """
    names = [folder.name for folder in trained] if len(trained) > 1 else [""]
    logs = [read_log(folder) for folder in trained]
    figure = _figure(dict(zip(names, logs, strict=True)))
    figure.savefig(out / "curves.png", dpi=120)
    # The layout is final: computing it again takes as long as drawing.
    figure.set_layout_engine("none")
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    svg = buffer.getvalue()
    bins, hidden = calibration.html_tables(results.tasks), hiding.html_tables(results.tasks)
    config = html.escape(read_file(out / "config.toml").decode())
    (out / "report.html").write_text(
        _PAGE.format(
            title=html.escape(out.resolve().name),
            metrics=html_table(results),
            calibration=f"<h2>Predictions and labels</h2>\n{bins}" if bins else "",
            relations=f"<h2>With one relation hidden</h2>\n{hidden}" if hidden else "",
            curves=svg[svg.index("<svg") :],
            contexts="\n".join(
                f'<h3>{html.escape(task)}</h3>\n<iframe src="{page}" loading="lazy"></iframe>'
                for task, page in context_pages(tasks).items()
            ),
            config=config,
        )
    )


def _figure(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    """Draws the curves of runs, given by the names of their curves and their logs."""
    from matplotlib.figure import Figure

    train: dict[str, list[tuple[int, float]]] = defaultdict(list)
    val, norms, waits, by_type = (train.copy() for _ in range(4))
    for name, records in runs.items():
        for record in records:
            step = record["step"]
            if "speed" in record:
                waits[name].append((step, 100 * record["speed"]["data_wait"]))
                continue
            curves = val if "split" in record else train
            curves[f"{name} {record['task']}".lstrip()].append((step, _number(record["loss"])))
            for kind, value in record.get("masked", {}).items():
                if "split" in record and kind in TYPE_NAMES:
                    by_type[f"{name} {record['task']} {kind}".lstrip()].append((step, value))
            if "split" not in record:
                norms[name].append((step, _number(record["gradient_norm"])))
    panels = [
        (train, "loss, train"),
        (val, "loss, validation"),
        (norms, "gradient norm"),
        (waits, "waiting for data, % of the time"),
    ]
    if by_type:
        panels.append((by_type, "loss of masked cells, validation"))
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(10, 3.5 * rows), layout="constrained")
    grid = figure.subplots(rows, 2).ravel()
    for unused in grid[len(panels) :]:
        unused.remove()
    for axes, (curves, title) in zip(grid, panels, strict=False):
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


def _thinned(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    size = -(-len(points) // _MAX_POINTS) or 1
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    steps = [group[-1][0] for group in groups]
    return steps, [sum(value for _, value in group) / len(group) for group in groups]


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
{calibration}
{relations}
<h2>Curves</h2>
{curves}
<h2>A context of each task, as the model saw it</h2>
{contexts}
<h2>Configuration</h2>
<pre>{config}</pre>
</html>
"""
