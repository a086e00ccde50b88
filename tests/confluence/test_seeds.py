"""The seeds of a task as arrays, from a store of a few rows."""

import numpy as np
import pytest

import headwater
from confluence import config, evaluation, seeds
from confluence.seeds import DAY_MICROSECONDS, NO_TIME
from stores import prepare_tables

SCHEMA = """
database = "shop"

[[table]]
name = "customers"
key = "id"
[table.columns]
id = "ignored"
code = "identifier"
note = "text"
age = "numerical"
since = "timestamp"
rich = "boolean"
city = "categorical"

[[table]]
name = "orders"
time = { column = "at" }
columns = { customer = "ignored", shop = "ignored", at = "timestamp", sum = "numerical" }
references = [{ columns = "customer", to = "customers" }, { columns = "shop", to = "shops" }]

[[table]]
name = "shops"
key = "id"
columns = { id = "ignored", size = "numerical" }

[[table]]
name = "towns"
key = "id"
columns = { id = "ignored", age = "numerical", code = "identifier", size = "numerical" }

[[aggregate]]
table = "orders"
reference = "customer"
columns = "sum"

[[aggregate]]
table = "orders"
reference = "shop"

[[task]]
name = "size"
cell = { table = "towns", column = "size" }
sees_everything = true

[[task]]
name = "rich"
cell = { table = "customers", column = "rich" }
sees_everything = true
"""
TASK = """
[[task]]
name = "{0}"
[task.derived]
anchor = "customers"
source = "labels"
key = "customer"
time = "at"
target = "{0}"
type = "{0}"
split = "split"
"""
KINDS = ("numerical", "timestamp", "boolean", "categorical")
CUSTOMERS = [
    (0, "c0", "a note", 20, "2020-01-01", True, "Rome"),
    (1, "c1", "a note", 30, "2020-01-02", False, "Oslo"),
    (2, "c2", "a note", 40, "", True, ""),
    (3, "c3", "a note", "", "2020-01-04", "", "Oslo"),
]
# Of the split "val" the second row has no label.
LABELS = [
    (3, "2021-01-01", 1.5, "2021-05-01", True, "x", "val"),
    (1, "2021-01-01", "", "", "", "", "val"),
    (0, "2021-03-01", 0.1, "2021-06-01", False, "y", "val"),
    *(
        (row, "2020-06-01", row, f"2021-01-0{1 + row}", row % 2 == 0, "xy"[row % 2], "train")
        for row in range(4)
    ),
    (2, "2021-01-01", 7, "2021-01-01", True, "x", "test"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    tables = {
        "customers": (("id", "code", "note", "age", "since", "rich", "city"), CUSTOMERS),
        "orders": (
            ("customer", "shop", "at", "sum"),
            [(0, 8, "2020-02-01", 3), (0, 8, "2021-02-01", 5), (1, 8, "2020-02-01", 7)],
        ),
        "shops": (("id", "size"), [(8, 1), (9, 2)]),
        "towns": (("id", "age", "code", "size"), [(of, of, f"t{of}", 9 - of) for of in range(3)]),
        "labels": (("customer", "at", *KINDS, "split"), LABELS),
    }
    schema = SCHEMA + "".join(TASK.format(kind) for kind in KINDS)
    return headwater.Store(
        prepare_tables(tmp_path_factory.mktemp("seeds"), schema, tables, dimension=32)
    )


def read(store, name, split, **options):
    (task,) = evaluation.find_tasks([f"shop/{name}"], [store])
    settings = config.load(None, [f"data.stores={store.path}", "data.mask_share=0.5"])
    return seeds.read(settings, [store], task, split, **{"with_cells": False, **options})


def day(text):
    return int(np.datetime64(text, "us").astype(np.int64))


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("numerical", [1.5, 0.1]), ("timestamp", [day("2021-05-01"), day("2021-06-01")]),
        ("boolean", [1, 0]), ("categorical", [0, 1]),
    ],
)  # fmt: skip
def test_the_seeds_of_a_split_are_those_with_a_label(store, kind, labels):
    found = read(store, kind, "val")
    assert found.rows.tolist() == [3, 0]
    assert found.times.tolist() == [day("2021-01-01"), day("2021-03-01")]
    assert found.labels == pytest.approx(labels, rel=1e-7 if kind != "numerical" else 1e-6)
    assert found.cells.shape == (2, 0)
    assert [of.dtype for of in found[:3]] == [np.uint32, np.int64, np.float64]
    exact = read(store, kind, "val", as_stored=True).labels
    # A z-score of 32 bits is off by a little.
    assert (found.labels.tolist() == labels) == (kind != "numerical")
    assert exact.tolist() == (labels if kind == "numerical" else found.labels.tolist())


def test_cells_are_those_of_the_seeds_row_and_its_aggregates(store):
    found = read(store, "numerical", "val", with_cells=True)
    columns = seeds.describe([store], evaluation.find_tasks(["shop/numerical"], [store])[0])
    of_row = ("age", "since", "rich", "city")
    assert columns.names == (
        *of_row, "orders by customer: count", "orders by customer: mean of sum",
        "orders by customer: time since the last",
    )  # fmt: skip
    assert columns.is_category.tolist() == [False, False, False, True, False, False, False]
    assert columns.is_aggregate.tolist() == [False] * 4 + [True] * 3
    nan = float("nan")
    # Times are days before the observation, numbers z-scores, the count of two orders log2(3) / 8.
    wanted = [[nan, 363, nan, 0, 0], [-(1.5**0.5), 425, 1, 1, np.log2(3) / 8]]
    assert found.cells[:, :5] == pytest.approx(np.array(wanted), rel=1e-6, nan_ok=True)
    assert found.cells[:, 1].tolist() == [363, 425]
    assert np.isnan(found.cells[:, 5:]).tolist() == [[True, True], [False, False]]
    # No other row's cells stand in their place, whose values are less or many days.
    assert 1 < found.cells[1, 6] < 2


def test_a_target_that_is_a_cell_is_no_cell_and_without_a_time_there_are_no_days_before_it(store):
    found = read(store, "rich", "train", with_cells=True)
    columns = seeds.describe([store], evaluation.find_tasks(["shop/rich"], [store])[0])
    assert columns.names[:4] == ("age", "since", "city", "orders by customer: count")
    assert set(found.times.tolist()) == {NO_TIME}
    order = np.argsort(found.rows)
    assert found.rows[order].tolist() == [0, 1, 2]
    assert found.labels[order].tolist() == [1, 0, 1]
    days = -day("2020-01-01") / DAY_MICROSECONDS
    wanted = [[-(1.5**0.5), days, 1], [0, days - 1, 0], [1.5**0.5, float("nan"), float("nan")]]
    cells = found.cells[order, :3]
    assert cells[0, 1] == days
    assert cells == pytest.approx(np.array(wanted), rel=1e-6, nan_ok=True)


def test_neither_the_target_nor_an_identifier_stands_in_the_place_of_a_cell(store):
    found = read(store, "size", "train", with_cells=True)
    ages = np.array([-(1.5**0.5), 0, 1.5**0.5])
    assert found.cells == pytest.approx(ages[found.rows][:, None], rel=1e-6)
