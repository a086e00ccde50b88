"""Pools: the rows of a table as seeds without a target."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import headwater
from shop import orders


def sampler(store_path, **settings):
    return headwater.Sampler(store_path, default_batch_size=4, **settings)


def test_a_pool_alone_serves_its_rows_once_without_a_target(store_path):
    with sampler(store_path, pools=["orders"], mask_share=0.15) as running:
        assert running.tasks == ["shop/pool:orders"]
        rows = []
        for split in ("train", "val", "test"):
            for batch in running.evaluate(split):
                assert (batch["target_pos"][batch["seq_weight"] > 0] == -1).all()
                assert batch["target_stype"][0] == 255
                assert not batch["is_target"].any()
                rows.extend(batch["seed_row"][batch["seq_weight"] > 0])
        metadata = running.database_metadata()
        count = next(t["row_count"] for t in metadata["tables"] if t["name"] == "orders")
        assert sorted(rows) == list(range(count))
        assert any(running.next_train_batch()["is_masked"].any() for _ in range(5))


def test_tasks_and_pools_share_a_stream_by_their_weights(store_path):
    settings = {
        "tasks": ["price"],
        "pools": {"orders": None, "customers": "2100-01-01"},
        "task_weights": [1, 2, 1],
    }
    with sampler(store_path, **settings) as running:
        # Pools come in the order of the tables.
        assert running.tasks == ["shop/price", "shop/pool:customers", "shop/pool:orders"]
        names = [running.tasks[running.next_train_batch()["task_idx"][0]] for _ in range(40)]
        assert names.count("shop/pool:orders") == 20
        restored = pickle.loads(pickle.dumps(running))
        with restored:
            one, two = running.next_train_batch(), restored.next_train_batch()
            assert all(np.array_equal(one[name], two[name]) for name in one)
        later = settings | {"pools": {"orders": None, "customers": "2100-01-02"}}
        with (
            sampler(store_path, **later) as other,
            pytest.raises(headwater.PlanMismatch, match="observed/shop/pool:customers"),
        ):
            other.resume(running.cursor())


def test_a_pool_encodes_chosen_rows_and_is_drawn(store_path):
    with sampler(store_path, pools=["orders"]) as running:
        batch = running.sample("pool:orders", [1, 2], ["2100-01-01"] * 2)
        assert (batch["seq_weight"] == [1, 1, 0, 0]).all()
        page = running.draw("pool:orders", 0)
        assert "target none, a row of a pool" in str(page)
        assert "a row of a pool" in page.html


def test_p7_a_pool_of_labels_is_refused_by_its_task(listed_store):
    message = (
        'pools: expected a table without labels, found "returns labels", whose rows are the labels '
        'of task "returns", those of test seeds, too; name another table, such as "customers"'
    )
    for pools in (["returns labels"], {"returns labels": "2100-01-01"}):
        with pytest.raises(headwater.InvalidArgument, match=message):
            sampler(listed_store, pools=pools)


def test_labels_can_be_required(store_path):
    with sampler(store_path) as every, sampler(store_path, require_label=True) as labelled:
        assert every.tasks == labelled.tasks
        left = 0
        for split in ("train", "val", "test"):
            counts, all_counts = labelled.seed_counts(split), every.seed_counts(split)
            assert all(0 < counts[task] < all_counts[task] for task in counts)
            left += counts["shop/price"]
        prices = orders()["price"]
        assert left == len(prices) - prices.count(None)
        with pytest.raises(headwater.PlanMismatch, match="require_label"):
            labelled.resume(every.cursor())


def test_other_tasks_stay_out_where_pools_are_named(store_path):
    with sampler(store_path, pools=["orders"]) as alone, sampler(store_path) as tasks:
        assert [*tasks.tasks, *alone.tasks] == ["shop/price", "shop/pool:orders"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"pools": "orders"},
            r'pools: expected a list of table names, found "orders"; say \["orders"\]',
        ),
        ({"pools": ""}, 'pools: expected a list of table names, found ""$'),
        ({"pools": {3: None}}, r"pools: expected table names as keys, found \[3\]"),
        ({"pools": ["orders", "orders"]}, "expected each table once"),
        ({"pools": ["order"]}, 'no table is called "order"; name one of shop/customers'),
        (
            {"pools": ["customers"]},
            'a time at which the rows of "customers" are observed, because the table has none of '
            'its own, found none; give one with the table, such as {"customers": "2024-06-01"}, or '
            "set `time` of the table in the schema",
        ),
        (
            {"pools": {"orders": "soon"}},
            r"pools\['orders'\]: expected an observation time, found 'soon': not a date such as "
            r'"2024-01-31"; None observes each row at its own time$',
        ),
        ({"pools": {"orders": "20240601"}}, 'its year would be 20240601; write a date as "2024-01'),
        ({"pools": {"orders": np.datetime64("NaT")}}, "found .*NaT.*: not a time; None observes"),
        ({"pools": {"orders": ""}}, "found '': not a date .*; None observes each row at its own"),
        ({"pools": {"orders": True}}, "found True: .*; None observes each row at its own time"),
        ({"pools": ["orders"], "visible_until": ""}, "found '': not a date .*; None sets no limit"),
        (
            {"pools": {"orders": "1900-01-01"}},
            'of "orders" that exist at their observation time \\(1900-01-01 00:00:00\\), found '
            "none among 20000; give the table a later time in pools, or name another table",
        ),
        # An integer is microseconds, not a date.
        (
            {"pools": {"orders": 20_240_601}},
            "time \\(1970-01-01 00:00:20.240601\\), found none among",
        ),
        (
            {"pools": ["orders"], "visible_until": "1900-01-01"},
            "found none among 20000; set a later `visible_until`, or name another table",
        ),
        ({"pools": ["orders"], "task_weights": [1, 2]}, "for each pool, 1 in all, found 2"),
        ({"pools": ["orders"], "staleness_days": 1}, "observed at a time of their own"),
        ({"pools": [("orders", 1)]}, "pools: expected a list of table names, found"),
        ({"pools": 3}, "pools: expected a list of table names, found 3"),
        ({"tasks": {"price"}}, "tasks: expected a list of task names, found {'price'}"),
        ({"tasks": "price"}, 'tasks: expected a list of task names, found "price"; say'),
        ({"tasks": ["pool:orders"]}, "to serve a pool, name its table in pools"),
        ({"tasks": []}, "expected at least one task or pool, found none"),
        ({"require_label": "yes"}, 'require_label: expected True or False, found "yes"'),
        (
            {"pools": ["orders"], "require_label": True},
            "require_label: expected a task whose seeds have labels, found pools alone",
        ),
    ],
)
def test_pools_that_cannot_be_are_refused(store_path, arguments, message):
    with warnings.catch_warnings(), pytest.raises(headwater.InvalidArgument, match=message):
        sampler(store_path, **arguments)
