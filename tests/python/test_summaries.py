"""Summaries from Python: beside NumPy, in batches, and in the tables of confluence."""

import datetime

import numpy as np
import pytest

import headwater
from shop import SCHEMA, orders, shop, write_csv

SUMMARIES = """
[[summary]]
table = "orders"
columns = "price"
period = "day"

[[summary]]
table = "orders"
columns = "price"
period = "week"
by = "customer_id"

[[task]]
name = "rating"
[task.derived]
anchor = "customers"
source = "ratings"
key = "customer_id"
time = "at"
target = "rating"
type = "numerical"
"""
START = np.datetime64("2023-01-01T00:00:00", "us")
DAY = np.timedelta64(1, "D")
MINUTE = np.timedelta64(60_000_000, "us")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summaries")
    (folder / "schema.toml").write_text(SCHEMA + SUMMARIES)
    source = write_csv(folder / "shop", shop())
    at = datetime.datetime(2023, 1, 5)
    (source / "ratings.csv").write_text(f"customer_id,at,rating\n103,{at},1\n104,{at},2\n")
    headwater.prepare(source, folder / "schema.toml", folder / "shop.db")
    return folder / "shop.db"


def rows_of(path, table, task, seeds, times, **settings):
    """Returns the cells of the rows of a table in the first context, by the columns' names."""
    metadata = headwater.Store(path).metadata()
    columns = next(found["columns"] for found in metadata["tables"] if found["name"] == table)
    names = {column["index"]: column["name"] for column in columns}
    with headwater.Sampler(path, default_batch_size=1, max_rows=64, **settings) as sampler:
        batch = sampler.sample(task, seeds, times)
    found = {}
    for at, column in enumerate(batch["column_ids"][0]):
        if column in names and not batch["is_padding"][0, at]:
            row = found.setdefault(int(batch["seq_row_ids"][0, at]), {})
            null = batch["is_null"][0, at]
            row[names[column]] = np.nan if null else float(batch["numeric_values"][0, at])
    return batch, list(found.values()), list(found)


def expected(rows):
    """Returns the cells of a summary of these orders."""
    price = np.array(orders()["price"]).astype(float)
    known = ~np.isnan(price)
    scores = (price - price[known].mean()) / price[known].std()
    values = np.sort(scores[rows & known])
    cells = {"count": np.log2(1 + rows.sum()) / 8, "price: mean": values.mean()}
    for quantile in (0.1, 0.5, 0.9):
        at = np.quantile(values, quantile, method="inverted_cdf")
        cells[f"price: quantile {quantile}"] = at
    return cells


@pytest.mark.parametrize("day", [1, 4, 6])
def test_a_context_has_the_last_day_of_all_and_the_last_week_of_the_customer(path, day):
    data = orders()
    placed = START + np.arange(len(data["price"])) * MINUTE
    now = START + day * DAY + 5 * MINUTE
    batch, rows, places = rows_of(path, "orders by day", "rating", [103], [now])
    assert places == [1]
    of_day = (placed >= START + (day - 1) * DAY) & (placed < START + day * DAY)
    assert rows[0] == pytest.approx(expected(of_day), abs=1e-5)
    metadata = headwater.Store(path).metadata()
    relations = len(metadata["relations"])
    assert batch["row_time"][0, 1] == (START + day * DAY).astype(np.int64)
    reached = [batch[name][0, 1] for name in ("row_hop", "row_direction", "row_relation")]
    assert reached == [1, 1, relations]
    assert ([0, 1], relations) in zip(
        batch["fk_edges"][0].tolist(), batch["fk_relations"][0], strict=True
    )
    assert batch["fk_adj"][0, 0, 1] == 1

    # 2023-01-01 is a Sunday, the end of a week.
    sunday = (placed < START + DAY) & (np.array(data["customer_id"]) == 103)
    _, rows, _ = rows_of(path, "orders by week and customer_id", "rating", [103], [now])
    assert rows == [pytest.approx(expected(sunday), abs=1e-5)]


def test_p7_a_seed_sees_no_summary_with_its_own_target(path):
    order = 5 * 24 * 60 + 7
    for table, latest in (("orders by day", 5), ("orders by week and customer_id", 1)):
        found = [
            rows_of(path, table, "price", [order], [START + day * DAY])[1] for day in (6, 7, 400)
        ]
        assert len(found[0]) == 1, table
        assert all(rows == found[0] for rows in found), latest


def test_a_store_without_an_ended_period_has_no_summary_in_its_contexts(path):
    _, rows, _ = rows_of(path, "orders by day", "rating", [103], [START + DAY - MINUTE])
    assert rows == []


def test_rows_of_summaries_read_as_counts_and_numbers(path):
    store = headwater.Store(path)
    row = store.row("orders by day", index=0)
    assert row["time"] == START + DAY
    assert row["cells"]["count"] == 24 * 60
    price = np.array(orders()["price"][: 24 * 60]).astype(float)
    known = np.sort(price[~np.isnan(price)])
    median = np.quantile(known, 0.5, method="inverted_cdf")
    assert row["cells"]["price: quantile 0.5"] == pytest.approx(median, rel=1e-5)
    assert row["cells"]["price: mean"] == pytest.approx(known.mean(), rel=1e-4)


def test_every_relation_and_column_of_a_batch_has_a_vector(path):
    store = headwater.Store(path)
    metadata = store.metadata()
    own = [s for s in metadata["summaries"] if s["relation"] >= len(metadata["relations"])]
    assert len(own) == 1
    assert len(store.relation_embeddings()) == len(metadata["relations"]) + len(own)
    assert len(store.column_embeddings()) == metadata["embedding"]["column_count"]
    with headwater.Sampler(path, default_batch_size=4, max_rows=32) as sampler:
        batches = [sampler.next_train_batch() for _ in range(5)]
    for batch in batches:
        for name in ("fk_relations", "row_relation"):
            assert batch[name].max() < len(store.relation_embeddings())
        assert batch["column_ids"].max() < len(store.column_embeddings())
        # A row has no more references than there are edges for each row.
        most = batch["fk_edges"].shape[1] // 32
        for edges in batch["fk_edges"]:
            used = edges[edges[:, 0] < 32, 0]
            assert np.bincount(used, minlength=1).max() <= most
