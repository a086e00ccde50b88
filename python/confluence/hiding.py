"""What a model uses: its leading metric with each relation hidden from the contexts.

A relation is hidden in a batch before the batch goes to the device. Its references are taken out,
and with them the rows that no other references lead to from the seed's row, and the cells of its
aggregates. Their places become padding, so that all shapes stay. What else a row says of itself
stays, too: in how many hops, and in which direction, the walk reached it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from confluence import contexts
from confluence.batch import HostBatch
from confluence.evaluation import Scores, Task
from confluence.metrics import worth
from confluence.tables import Rows, titled, titled_html

OWN_CELLS = "the seed's own cells"
# Both ends of an edge that is unused.
_NO_ROW = 65535

Flags = npt.NDArray[np.bool_]


class Hider:
    """Hides the relations of a store in turn, and last the cells of the seed's own row."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        relations = contexts.relations_of(metadata)
        self._relations = {number: of.name for number, of in enumerate(relations)}
        for summary in metadata.get("summaries", []):
            # A summary without parents has a relation after all others.
            name = metadata["tables"][summary["table"]]["name"]
            self._relations.setdefault(summary["relation"], name)
        # The columns of the aggregates, of each relation and of all.
        self._columns = {
            number: [of["index"] for of in metadata["aggregates"] if of["relation"] == number]
            for number in self._relations
        }
        self._aggregates = [of["index"] for of in metadata["aggregates"]]
        self._contexts = 0
        # The contexts that have each relation, in the order of `_hidden`.
        self._counts = np.zeros(len(self._relations) + 1, np.int64)

    def hide(self, batch: HostBatch) -> list[HostBatch]:
        """Returns the batch without each relation, then without the seeds' own cells.

        Where no context has any of these, it is the batch itself.
        """
        is_counted = batch["seq_weight"] > 0
        self._contexts += int(np.count_nonzero(is_counted))
        found = []
        for number, (is_affected, changed) in enumerate(self._hidden(batch)):
            self._counts[number] += np.count_nonzero(is_affected & is_counted)
            found.append({**batch, **changed} if is_affected.any() else batch)
        return found

    def _hidden(self, batch: HostBatch) -> Iterator[tuple[Flags, dict[str, npt.NDArray[Any]]]]:
        """Yields whether each context is affected, and the arrays that change."""
        edges = batch["fk_edges"]
        is_edge = edges[..., 0] != _NO_ROW
        is_cell = batch["is_padding"] == 0
        is_aggregate = np.isin(batch["column_ids"], self._aggregates)
        row_count = batch["row_hop"].shape[1]
        connected = _reached(edges, is_edge, row_count)
        for number, columns in self._columns.items():
            is_own = is_edge & (batch["fk_relations"] == number)
            lost = connected & ~_reached(edges, is_edge & ~is_own, row_count)
            of_aggregates = is_cell & np.isin(batch["column_ids"], columns)
            hidden = np.take_along_axis(lost, batch["seq_row_ids"].astype(np.int64), axis=1)
            yield (
                is_own.any(axis=1) | of_aggregates.any(axis=1),
                {
                    "is_padding": _padded(batch, hidden | of_aggregates),
                    "fk_edges": np.where(is_own[..., None], np.uint16(_NO_ROW), edges),
                },
            )
        # The seed's row comes first.
        own = is_cell & (batch["seq_row_ids"] == 0) & ~is_aggregate & (batch["is_target"] == 0)
        yield own.any(axis=1), {"is_padding": _padded(batch, own)}

    def records(self, task: Task, whole: Scores, hidden: Sequence[Scores]) -> list[dict[str, Any]]:
        """Returns the leading metric without each relation that occurs, the greatest loss first."""
        leading = task.leading
        names = [*self._relations.values(), OWN_CELLS]
        found = [
            {
                "hidden": name,
                "contexts": int(count) / self._contexts,
                "value": of.metrics[leading],
                "difference": of.metrics[leading] - whole.metrics[leading],
            }
            for name, count, of in zip(names, self._counts, hidden, strict=True)
            if count
        ]

        def order(of: Mapping[str, Any]) -> tuple[bool, float, str]:
            # NaN, which AUROC is without positives, is neither less nor greater.
            is_unknown = math.isnan(of["difference"])
            return is_unknown, 0.0 if is_unknown else worth(leading, of["difference"]), of["hidden"]

        return sorted(found, key=order)


def _reached(edges: npt.NDArray[np.uint16], is_used: Flags, row_count: int) -> Flags:
    """Returns [B, R], the rows that edges lead to from the seed's row, in either direction."""
    reached = np.zeros((len(edges), row_count), bool)
    reached[:, 0] = True
    context, place = np.nonzero(is_used)
    first, second = edges[context, place].T
    while True:
        before = np.count_nonzero(reached)
        is_near = reached[context, first] | reached[context, second]
        for end in (first, second):
            reached[context[is_near], end[is_near]] = True
        if np.count_nonzero(reached) == before:
            return reached


def _padded(batch: HostBatch, hidden: Flags) -> npt.NDArray[Any]:
    return np.where(hidden, np.uint8(1), batch["is_padding"])


def text(tasks: Mapping[str, Any]) -> str:
    """Returns what each task and split uses, from the results of a run, as lines of text."""
    return "\n\n".join(titled(*of) for of in _tables(tasks))


def html_tables(tasks: Mapping[str, Any]) -> str:
    """Returns what each task and split uses, from the results of a run, as tables."""
    return "\n".join(titled_html(*of) for of in _tables(tasks))


def _tables(tasks: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Yields the title, and the header and the rows, of each task and split with such records."""
    for name, of_task in tasks.items():
        leading = of_task["leading"]
        for split in ("train", "val", "test"):
            found = of_task.get(split, {}).get("relations")
            if not found:
                continue
            rows = [
                (
                    of["hidden"],
                    f"{100 * of['contexts']:.1f} %",
                    f"{of['value']:.4f}",
                    f"{of['difference']:+.4f}",
                )
                for of in found
            ]
            value = of_task[split][leading]
            title = f"{name}, {split}: {leading} {value:.4f}; with one relation hidden:"
            yield title, [("hidden", "contexts", leading, "difference"), *rows]
