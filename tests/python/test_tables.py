"""Tables and tasks of a store as frames, and what a notebook shows of them."""

import datetime
import os
import re
import signal
import threading
import time

import numpy as np
import pytest

import headwater
from shop import SCHEMA, SQL_TASK, customers, orders, shop, write_csv


@pytest.fixture(scope="module")
def store(store_path):
    return headwater.Store(store_path)


def test_a_table_has_the_values_of_its_source(store):
    found, wanted = store.tables["orders"].to_arrow(), orders()
    assert found.column_names == ["order_id", "customer_id", "price", "placed_at"]
    assert [str(of) for of in found.schema.types] == ["string", "string", "double", "timestamp[us]"]
    assert found["order_id"].to_pylist() == [str(key) for key in wanted["order_id"]]
    assert found["customer_id"].to_pylist() == [str(key) for key in wanted["customer_id"]]
    assert found["price"].to_pylist() == wanted["price"]
    assert found["placed_at"].to_pylist() == wanted["placed_at"]
    assert max(len(batch) for batch in found.to_batches()) == 8192
    names = store.table("customers").to_pandas()
    for column in ("name", "city", "member", "note"):
        assert (
            names[column].astype(object).where(names[column].notna(), None).tolist()
            == (customers()[column])
        ), column


def test_polars_and_pandas_read_a_table_as_it_is(store):
    import pandas
    import polars

    wanted = store.table("orders").to_arrow()
    assert polars.from_arrow(store.table("orders")).to_arrow().to_pylist() == wanted.to_pylist()
    assert store.table("orders").to_polars().to_arrow().to_pylist() == wanted.to_pylist()
    assert pandas.DataFrame.from_arrow(store.table("orders")).equals(wanted.to_pandas())


def test_a_store_of_its_own_frames_is_the_same_store(store, store_path, schema_file, tmp_path):
    headwater.prepare(store.tables, schema_file, tmp_path / "again", dimension=32)
    assert headwater.Store(tmp_path / "again").root == store.root


def test_composite_keys_and_references_have_their_parts(tmp_path):
    import pyarrow

    schema = {
        "database": "d",
        "limits": {"unresolved_share": 1.0},
        "table": [
            {
                "name": "lines",
                "key": ["a|b", "line"],
                "time": {"column": "at"},
                "columns": {"a|b": "ignored", "line": "numerical", "at": "ignored"},
            },
            {
                "name": "notes",
                "columns": {"x": "ignored", "y": "ignored", "text": "text"},
                "references": [{"columns": ["x", "y"], "to": "lines"}],
            },
        ],
    }
    at = [datetime.datetime(2020, 1, 1), None]
    lines = pyarrow.table({"a|b": ["p|q", "r\\"], "line": [1, 2], "at": at})
    notes = pyarrow.table({
        "x": ["r\\", "p|q", "none", None], "y": [2, 1, 1, 1], "text": ["A", "B", None, "D"],
    })  # fmt: skip
    headwater.prepare({"lines": lines, "notes": notes}, schema, tmp_path / "db")
    store = headwater.Store(tmp_path / "db")
    assert store.tables["lines"].to_arrow().to_pydict() == {
        "a|b": ["p|q", "r\\"], "line": [1.0, 2.0], "at": at,
    }  # fmt: skip
    assert store.tables["notes"].to_arrow().to_pydict() == {
        "x": ["r\\", "p|q", None, None], "y": ["2", "1", None, None], "text": ["A", "B", None, "D"],
    }  # fmt: skip
    assert store.tables["notes"].columns == {"x": "-> lines", "y": "-> lines", "text": "text"}
    assert store.tables["lines"].columns == {"a|b": "key", "line": "key", "at": "time"}


def test_the_seeds_of_a_task_have_key_time_target_and_split(store):
    task = store.task("price")
    seeds, wanted = task.seeds().to_arrow(), orders()
    assert seeds.column_names == ["order_id", "obs_time", "target", "split"]
    assert seeds["target"].to_pylist() == wanted["price"]
    assert seeds["obs_time"].to_pylist() == wanted["placed_at"]
    assert (task.type, task.anchor, len(task)) == ("numerical", "orders", 20_000)
    splits = seeds["split"].to_pylist()
    assert task.splits == {name: splits.count(name) for name in ("train", "val", "test")}
    with headwater.Sampler(store) as sampler:
        for name, count in task.splits.items():
            assert sampler.seed_counts(name) == {"shop/price": count}
        # The seeds that the sampler serves in a split are those that the frame has in it.
        rows = [batch["seed_row"][batch["seq_weight"] > 0] for batch in sampler.evaluate("test")]
    assert sorted(np.concatenate(rows)) == [n for n, of in enumerate(splits) if of == "test"]
    prices = sorted(price for price in wanted["price"] if price is not None)
    assert task.labels["median"] == prices[(len(prices) - 1) // 2]
    assert task.labels["NULL"] == wanted["price"].count(None)


def test_a_derived_task_has_the_labels_of_its_query(tmp_path):
    folder = write_csv(tmp_path / "shop", shop())
    (tmp_path / "schema.toml").write_text(SCHEMA + SQL_TASK)
    headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db", dimension=32)
    seeds = headwater.Store(tmp_path / "db").task("shop/spending").to_pandas()
    spent = {}
    for key, price in zip(orders()["customer_id"], orders()["price"], strict=True):
        spent[str(key)] = spent.get(str(key), 0) + (price or 0)
    assert dict(zip(seeds["customer_id"], seeds["target"], strict=True)) == pytest.approx(spent)
    assert set(seeds["obs_time"]) == {datetime.datetime(2024, 1, 1)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda store: store.tables["ordres"], "shop has no table 'ordres'; did you mean 'orders'"),
        (lambda store: store.table("x"), "has no table 'x'; expected one of: customers, orders"),
        (lambda store: store.task("prise"), "shop has no task 'prise'; did you mean 'price'"),
        (lambda store: store.tasks["shop/prise"], "did you mean 'price'"),
    ],
)
def test_an_unknown_name_has_the_nearest_one_in_its_message(store, call, message):
    with pytest.raises(headwater.InvalidArgument, match=message):
        call(store)
    assert "ordres" not in store.tables
    assert store.tables.get("ordres") is None


def test_a_store_stands_for_its_folder(store, store_path):
    assert headwater.Store(store).root == store.root
    with headwater.Sampler([store], default_batch_size=2, num_prefetch=0) as sampler:
        assert sampler.tasks == ["shop/price"]


def test_notebooks_show_stores_tables_and_tasks_escaped(store, tmp_path):
    html = store._repr_html_()
    for cell in ("orders.customer_id", "20,000", "time placed_at", "price"):
        assert f"<td>{cell}</td>" in html
    keys = {name: ", ".join(table.key) or "-" for name, table in store.tables.items()}
    for name, key in keys.items():
        assert re.search(rf"<td>{name}</td><td>[\d,]+</td><td>\d+</td><td>{key}</td>", html), name
    assert repr(store.tables["orders"]) == "<table orders: 20,000 rows, time placed_at>"
    table = store.tables["orders"]._repr_html_()
    assert "<caption>table orders: 20,000 rows, time placed_at</caption>" in table
    assert "<th>price</th>" in table
    assert "<em>-&gt; customers</em>" in table
    assert "<td>2023-01-01T00:03:00</td>" in table
    assert "<td>NULL</td>" in table
    assert "<td>…</td>" in table
    task = store.task("price")
    assert repr(task) == "<task price: numerical of orders, 20,000 seeds>"
    assert f"<td>{task.splits['test']:,}</td>" in task._repr_html_()
    assert "20,000 seeds, split by hash</caption>" in task._repr_html_()
    assert "<th>median</th>" in task._repr_html_()
    assert task.labels["NULL"] > 1000
    assert f"<td>{task.labels['NULL']:,}</td></tr></table>" in task._repr_html_()
    import pyarrow

    schema = {"database": "<b>", "table": [{"name": "<i>", "columns": {"<u>": "text"}}]}
    headwater.prepare({"<i>": pyarrow.table({"<u>": ["<s>"]})}, schema, tmp_path / "db")
    evil = headwater.Store(tmp_path / "db")
    for html in (evil._repr_html_(), evil.tables["<i>"]._repr_html_()):
        assert not any(tag in html for tag in ("<b>", "<i>", "<u>", "<s>"))
        assert "&lt;i&gt;" in html
        # All of its rows are shown.
        assert "…" not in html


def test_damage_is_told_when_a_frame_is_read(store_path, tmp_path):
    import shutil

    shutil.copytree(store_path, tmp_path / "db")
    (file,) = (tmp_path / "db" / "tables").glob("orders*")
    damaged = bytearray(file.read_bytes())
    for place in range(len(damaged) // 4, 3 * len(damaged) // 4, 1000):
        damaged[place] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(headwater.Corrupt):
        headwater.Store(tmp_path / "db").tables["orders"].to_arrow()


def test_ctrl_c_interrupts_the_reading_of_a_frame(tmp_path):
    import pyarrow

    rows = pyarrow.array(np.random.default_rng(5).standard_normal(800_000))
    schema = {"database": "big", "table": [{"name": "t", "columns": {"x": "numerical"}}]}
    headwater.prepare({"t": pyarrow.table({"x": rows})}, schema, tmp_path / "db")
    table = headwater.Store(tmp_path / "db").tables["t"]
    start = time.perf_counter()
    table.to_arrow()
    whole = time.perf_counter() - start

    def interrupt():
        time.sleep(whole / 8)
        os.kill(os.getpid(), signal.SIGINT)

    start = time.perf_counter()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        table.to_arrow()
    assert time.perf_counter() - start < 0.8 * whole
    thread.join()


def test_a_drawn_context_shows_itself_in_a_frame_of_its_own(store, tmp_path):
    with headwater.Sampler(store, default_sequence_length=64, max_rows=16) as sampler:
        page = sampler.draw("price", 3, tmp_path / "drawn.html")
        sampler.render_context("price", 3, tmp_path / "rendered.html")
    assert page.html == (tmp_path / "drawn.html").read_text()
    assert page.html == (tmp_path / "rendered.html").read_text()
    shown = page._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts"')
    assert "<style>" not in shown
    assert shown.count('"') == 6
    assert "orders 3" in str(page)
    assert repr(page) == "<Page of task shop/price, seed_index 3>"
    page.save(tmp_path / "saved.html")
    assert (tmp_path / "saved.html").read_text() == page.html
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(headwater.InvalidArgument, match="is not a page of headwater"):
        page.save(tmp_path / "mine")


def test_a_context_longer_than_its_sequence_says_how_much_is_cut(store):
    first_lines = {}
    for length in (3, 64):
        with headwater.Sampler(store, default_sequence_length=length, max_rows=16) as sampler:
            first_lines[length] = sampler.draw("price", 3).text.splitlines()[2]
    # The seed row has four cells.
    assert first_lines[3].startswith("1 row; 3 cells fill the sequence, 1 more is cut;")
    assert re.match(r"\d+ rows and \d+ cells in the context;", first_lines[64])
