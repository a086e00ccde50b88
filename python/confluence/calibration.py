"""Predictions against labels: seeds in bins by their prediction, in plain NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from confluence.batch import BOOLEAN, NUMERICAL
from confluence.metrics import Numbers
from confluence.tables import Rows, titled, titled_html

_BINS = 10
# The name of each entry of a bin, as a column of a table.
_COLUMNS = {
    "from": "from",
    "to": "to",
    "seeds": "seeds",
    "prediction": "mean prediction",
    "label": "mean label",
    "mae": "mean absolute error",
}


def calibration(target_type: int, values: Numbers, labels: Numbers) -> dict[str, Any] | None:
    """Returns the bins of a boolean or a numerical target; None for other targets.

    A boolean has ten bins of equal width, by the predicted probability, and its `error`, the
    expected calibration error: over all seeds, the mean distance of a bin's mean prediction from
    its share of positives. A number has at most ten bins of about as many seeds each; seeds with
    the same prediction share a bin.
    """
    if target_type == BOOLEAN:
        # The probability 1 belongs to the last bin.
        places = np.minimum(np.floor(values * _BINS), _BINS - 1)
        bins = [
            {
                "from": place / _BINS,
                "to": (place + 1) / _BINS,
                **_means(places == place, values, labels),
            }
            for place in range(_BINS)
        ]
        distances = [
            of["seeds"] * abs(of["prediction"] - of["label"]) for of in bins if of["seeds"]
        ]
        return {"bins": bins, "error": sum(distances) / len(values)}
    if target_type == NUMERICAL:
        return {"bins": list(_numerical_bins(values, labels))}
    return None


def _numerical_bins(values: Numbers, labels: Numbers) -> Iterator[dict[str, Any]]:
    places = np.searchsorted(np.sort(values), values) * _BINS // len(values)
    for place in np.unique(places):
        inside = places == place
        yield {
            "from": float(values[inside].min()),
            "to": float(values[inside].max()),
            **_means(inside, values, labels),
            "mae": float(np.mean(np.abs(values[inside] - labels[inside]))),
        }


def _means(inside: npt.NDArray[np.bool_], values: Numbers, labels: Numbers) -> dict[str, Any]:
    """Returns the number of seeds of a bin and their means, None for those of an empty bin."""
    count = int(np.count_nonzero(inside))
    prediction, label = (float(np.mean(of[inside])) if count else None for of in (values, labels))
    return {"seeds": count, "prediction": prediction, "label": label}


def text(tasks: Mapping[str, Any]) -> str:
    """Returns the bins of each task and split, from the results of a run, as lines of text."""
    return "\n\n".join(titled(*of) for of in _tables(tasks))


def html_tables(tasks: Mapping[str, Any]) -> str:
    """Returns the bins of each task and split, from the results of a run, as tables."""
    return "\n".join(titled_html(*of) for of in _tables(tasks))


def _tables(tasks: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Yields the title, and the header and the rows, of each task and split that has bins."""
    for name, of_task in tasks.items():
        for split in ("train", "val", "test"):
            # Not every split is scored, nor every type of target in bins.
            found = of_task.get(split, {}).get("calibration")
            if found is None:
                continue
            title = f"{name}, {split}: predictions and labels"
            if "error" in found:
                title += f", expected calibration error {found['error']:.4f}"
            columns = [column for column in _COLUMNS if column in found["bins"][0]]
            rows = [[_cell(of[column]) for column in columns] for of in found["bins"]]
            yield title, [[_COLUMNS[column] for column in columns], *rows]


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4g}"
