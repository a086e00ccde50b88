"""Masked cells against a plain twin, written from the two FORMAT.md pages alone."""

from __future__ import annotations

import re

import numpy as np
import pytest

import headwater
from event_twin import Stream
from headwater.masks import attention_bits
from name_identity import name_identity
from plain_masks import plain_masks

MASKED_CELL = 11
IDENTIFIER, TEXT = 0, 5
NO_PLACE = 65535


def never_masked(metadata):
    """Returns the columns whose cells are labels in some row, are told by others, or link rows."""
    tables = metadata["tables"]
    found = {aggregate["index"] for aggregate in metadata["aggregates"]}
    for number, table in enumerate(tables):
        links = set(table["key"])
        for relation in metadata["relations"]:
            if relation["child"] == number:
                links |= set(relation["name"].split("+"))
            if relation["parent"] == number:
                links |= set(relation.get("to_columns", []))
        found |= {column["index"] for column in table["columns"] if column["name"] in links}
    for summary in metadata.get("summaries", []):
        found |= {column["index"] for column in tables[summary["table"]]["columns"]}
    in_columns = [table for table in tables if table["time"] and "column" in table["time"]]
    found |= {t["columns"][t["time"]["column"]["column"]]["index"] for t in in_columns}
    for task in metadata["tasks"]:
        if "cell" in task["target"]:
            cell, columns = task["target"]["cell"], tables[task["anchor"]]["columns"]
            found |= {columns[at]["index"] for at in [cell["column"], *cell.get("hide", [])]}
        elif "horizon_us" in task["target"]["derived"]:
            rows = next(table for table in tables if table["name"] == f"{task['name']} labels")
            found |= {column["index"] for column in rows["columns"]}
    return found


def expected_masks(batch, row, settings, task, never):
    """Returns the places of the masked cells of a sequence in the first epoch."""
    identity = (name_identity(task), 0, int(batch["seed_row"][row]))
    words = Stream(settings["seed"], MASKED_CELL, identity)
    share = round(settings["mask_share"] * 65536)
    places, word = [], 0
    for at in range(batch["is_null"].shape[1]):
        word = words.word() if at % 4 == 0 else word >> 16
        kind = batch["semantic_types"][row, at]
        told = ["is_padding", "is_null", "is_target"]
        may_be = not any(batch[name][row, at] for name in told) and kind != IDENTIFIER
        may_be &= settings["mask_texts"] or kind != TEXT
        may_be &= batch["column_ids"][row, at] not in never
        if may_be and (word & 0xFFFF) < share:
            places.append(at)
    return places[: settings["mask_most"]]


@pytest.mark.parametrize("compact", [False, True])
def test_masks_of_attention_are_the_bits_of_the_loops(store_path, compact):
    with headwater.Sampler(
        store_path, default_batch_size=5, default_sequence_length=25, max_rows=9, compact=compact
    ) as sampler:
        for split in ("train", "val"):
            # The last batch of a task ends with sequences of padding alone.
            for _, batch in zip(range(4), sampler.evaluate(split), strict=False):
                bits = attention_bits(batch)
                for name, expected in plain_masks(batch).items():
                    found = getattr(bits, name)
                    assert found.shape == (5, 25, 4)
                    found = np.unpackbits(found, axis=2, bitorder="little")
                    assert np.array_equal(found[..., :25], expected), name
                    assert not found[..., 25:].any()


def test_masks_of_attention_of_no_whole_batch_are_refused_by_its_missing_arrays():
    with pytest.raises(headwater.InvalidArgument, match="found no 'seq_row_ids', 'column_ids', "):
        attention_bits({})
    whole = dict.fromkeys(("seq_row_ids", "column_ids", "is_padding", "row_hop"), np.zeros((1, 1)))
    message = "found no 'fk_edges'; give a whole batch of headwater.Sampler, which has them with"
    with pytest.raises(headwater.InvalidArgument, match=message):
        attention_bits(whole)


@pytest.mark.parametrize("store", ["store_path", "listed_store"])
@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize(("share", "most"), [(0.15, 40), (0.6, 5)])
def test_masks_are_those_of_the_twin(request, store, texts, share, most):
    settings = {"seed": 7, "mask_share": share, "mask_most": most, "mask_texts": texts}
    seen, of_labels = 0, 0
    with headwater.Sampler(
        request.getfixturevalue(store), tasks=["price"], pools=["orders"], default_batch_size=8,
        max_rows=16, default_sequence_length=64, **settings,
    ) as sampler:  # fmt: skip
        metadata = sampler.database_metadata()
        tables = metadata["tables"]
        never = never_masked(metadata)
        rows_of_labels = [
            column["index"]
            for table in tables
            if table["name"] == "returns labels"
            for column in table["columns"]
        ]
        for task in sampler.tasks:
            for _, batch in zip(range(12), sampler.evaluate("val", [task]), strict=False):
                for row in np.flatnonzero(batch["seq_weight"]):
                    places = expected_masks(batch, row, settings, task, never)
                    listed = places + [NO_PLACE] * (most - len(places))
                    assert batch["masked_pos"][row].tolist() == listed
                    assert np.flatnonzero(batch["is_masked"][row]).tolist() == places
                    seen += len(places)
                    of_labels += int(np.isin(batch["column_ids"][row], rows_of_labels).sum())
    assert seen > 50
    assert (of_labels > 50) == (store == "listed_store")


def test_a_drawn_context_shows_which_cells_are_masked(store_path):
    settings = {"default_batch_size": 1, "default_sequence_length": 64, "max_rows": 16}
    masked = {"mask_share": 0.5, "mask_most": 16, "mask_texts": True}
    with headwater.Sampler(store_path, tasks=["price"], **settings, **masked) as sampler:
        drawn = [sampler.draw("price", seed) for seed in range(20)]
    pages = [page.html for page in drawn]
    counts = [page.count('class="cell masked"') for page in pages]
    assert any(counts)
    for page, count in zip(pages, counts, strict=True):
        assert re.search(rf"<b>{count}</b> cells? masked beside the target", page)
    # The text marks the same cells.
    for page, count in zip(drawn, counts, strict=True):
        of_page = re.findall(r'class="cell masked"(?s:.*?)<b>(.*?)</b>', page.html)
        text = str(page)
        assert re.search(rf"; {count} cells? masked beside the target, in the first epoch; ", text)
        of_text = re.findall(r"([^ ,│]+) = (?:\"[^\"]*\"|[^,\n]*?) \(masked\)", text)
        assert sorted(of_text) == sorted(of_page)
    with headwater.Sampler(store_path, tasks=["price"], **settings) as sampler:
        page = sampler.draw("price", 0)
        assert 'class="cell masked"' not in page.html
        assert "masked" not in str(page)
        assert "masked beside the target" not in page.html
