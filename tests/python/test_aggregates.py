"""Aggregates from Python: beside NumPy, by choice of the rows, and capped in time."""

import datetime

import numpy as np
import pytest

import headwater
from shop import SCHEMA, SQL_TASK, orders, shop, write_csv

AGGREGATES = """
[[aggregate]]
table = "orders"
reference = "customer_id"
columns = "price"
windows = ["2 days", "ever"]
"""
START = np.datetime64("2023-01-01T00:00:00", "us")
MINUTE = np.timedelta64(60_000_000, "us")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aggregates")
    (folder / "schema.toml").write_text(SCHEMA + AGGREGATES + SQL_TASK)
    source = write_csv(folder / "shop", shop())
    headwater.prepare(source, folder / "schema.toml", folder / "shop.db")
    return folder / "shop.db"


def cells_of_customer(store, order, when, **settings):
    """Returns the aggregates of the customer of an order, by name; NaN for NULL."""
    metadata = headwater.Store(store).metadata()
    names = {aggregate["index"]: aggregate["name"] for aggregate in metadata["aggregates"]}
    with headwater.Sampler(store, default_batch_size=1, max_rows=16, **settings) as sampler:
        batch = sampler.sample("price", [order], [when])
    found = {}
    for at, column in enumerate(batch["column_ids"][0]):
        if column in names and not batch["is_padding"][0, at]:
            null = batch["is_null"][0, at]
            found[names[column]] = np.nan if null else batch["numeric_values"][0, at]
    return found


@pytest.mark.parametrize("order", [5_000, 12_345, 40])
def test_aggregates_equal_those_of_numpy(store, order):
    data = {name: np.array(values) for name, values in orders().items()}
    price = data["price"].astype(float)
    known = ~np.isnan(price)
    scores = (price - price[known].mean()) / price[known].std()
    placed = START + np.arange(len(price)) * MINUTE
    now = placed[order]
    others = (data["customer_id"] == data["customer_id"][order]) & (placed <= now)
    others[order] = False  # the seed is no part of what is said of the others
    recent = others & (placed > now - np.timedelta64(2, "D"))
    found = cells_of_customer(store, order, now)
    for scope, rows in {"": others, ", last 2 days": recent}.items():
        count, mean = (
            found[f"orders by customer_id{scope}: {what}"] for what in ("count", "mean of price")
        )
        assert count == pytest.approx(np.log2(1 + rows.sum()) / 8, rel=1e-6)
        expected = scores[rows & known].mean() if (rows & known).any() else np.nan
        assert mean == pytest.approx(expected, abs=1e-5, nan_ok=True)
    since = (now - placed[others].max()) / np.timedelta64(1, "s")
    last = found["orders by customer_id: time since the last"]
    assert last == pytest.approx(np.log2(1 + since) / 16, rel=1e-6)


def test_aggregates_can_be_left_out(store):
    assert cells_of_customer(store, 50, START, aggregates="none") == {}
    with pytest.raises(headwater.InvalidArgument, match='"near" or "all", found "far"'):
        cells_of_customer(store, 50, START, aggregates="far")


def test_p7_a_stale_train_seed_is_observed_earlier(store, tmp_path):
    most = 3
    settings = {"tasks": ["spending"], "default_batch_size": 64, "max_rows": 8}
    with headwater.Sampler(store, **settings) as sampler:
        own = observed(sampler.evaluate("train"))
        fresh = [sampler.next_train_batch() for _ in range(60)]
    with headwater.Sampler(store, **settings, staleness_days=most) as sampler:
        assert observed(sampler.evaluate("train")) == own
        stale = []
        for step in range(60):
            if step == 20:
                sampler.save_cursor(tmp_path / "cursor")
            stale.append(sampler.next_train_batch())
    # Also in a run that is resumed, on other threads.
    with headwater.Sampler(store, **settings, staleness_days=most, num_threads=1) as sampler:
        sampler.resume(tmp_path / "cursor")
        for batch in stale[20:]:
            resumed = sampler.next_train_batch()
            assert all(np.array_equal(batch[name], resumed[name]) for name in batch)
    days = {row: set() for row in own}
    for before, after in zip(fresh, stale, strict=True):
        assert np.array_equal(before["seed_row"], after["seed_row"])
        for row, time in zip(after["seed_row"], after["obs_time"], strict=True):
            days[row].add((own[row] - time) / 86_400e6)
        assert (after["row_time"].max(axis=1) <= after["obs_time"]).all()
    found = np.array(sorted(set().union(*days.values())))
    assert found.min() >= 0
    assert found.max() <= most
    # Evenly, and another time in each epoch.
    assert abs(found.mean() - most / 2) < 0.1
    assert min(map(len, days.values())) > 20


def test_a_staleness_without_effect_is_refused(store, tmp_path):
    with pytest.raises(headwater.InvalidArgument, match="staleness_days: expected 0 to 3650000"):
        headwater.Sampler(store, staleness_days=4_000_000)
    with pytest.raises(
        headwater.InvalidArgument, match="found task .*price.* a cell of the seed row"
    ):
        headwater.Sampler(store, tasks=["price"], staleness_days=1)
    with headwater.Sampler(store, tasks=["spending"], staleness_days=1) as sampler:
        sampler.save_cursor(tmp_path / "cursor")
    with (
        headwater.Sampler(store, tasks=["spending"], staleness_days=2) as sampler,
        pytest.raises(headwater.PlanMismatch, match='"staleness"'),
    ):
        sampler.resume(tmp_path / "cursor")


def observed(batches):
    """Returns the observation time of each seed row."""
    return {
        row: time
        for batch in batches
        for row, time, weight in zip(
            batch["seed_row"], batch["obs_time"], batch["seq_weight"], strict=True
        )
        if weight
    }


def test_p7_nothing_later_than_visible_until_is_known(store):
    until = datetime.datetime(2023, 1, 3)
    with headwater.Sampler(
        store, visible_until=until, default_batch_size=4, max_rows=16
    ) as sampler:
        cut = sampler.sample("price", [9_000], ["2023-01-07"])
        in_order = list(sampler.evaluate("test"))
    with headwater.Sampler(store, default_batch_size=4, max_rows=16) as sampler:
        then = sampler.sample("price", [9_000], [until])
    latest = int(np.datetime64(until, "us").astype(np.int64))
    assert all(np.array_equal(cut[name], then[name]) for name in then)
    assert max(batch["obs_time"].max() for batch in in_order) == latest
    assert max(batch["row_time"].max() for batch in in_order) <= latest
    with pytest.raises(headwater.InvalidArgument, match="visible_until: expected .* found 'soon'"):
        headwater.Sampler(store, visible_until="soon")
