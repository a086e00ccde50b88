"""The metadata, vectors and rows of a store."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import headwater
from headwater.reduce import GramJob, Worker


@pytest.fixture(scope="module")
def store(store_path):
    return headwater.Store(store_path)


def test_metadata_equals_the_file_on_disk(store, store_path):
    assert store.metadata() == json.loads((store_path / "metadata.json").read_text())
    assert store.database_metadata() == store.metadata()
    assert store.root == store.metadata()["root"]
    assert Path(store.path) == store_path


def test_embeddings_are_float16_arrays(store):
    columns = store.column_embeddings()
    assert columns.dtype == np.float16
    assert columns.shape == (9, 32)
    norms = np.linalg.norm(columns.astype(np.float64), axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-2)
    tables, (relation,) = store.metadata()["tables"], store.metadata()["relations"]
    (reference,) = (
        column["index"]
        for column in tables[relation["child"]]["columns"]
        if column["name"] == relation["name"]
    )
    # A relation has the vector of the column by which it refers: their names are the same text.
    np.testing.assert_array_equal(store.relation_embeddings(), columns[[reference]])
    categories = store.categorical_embeddings()
    assert categories.dtype == np.float16
    assert categories.shape == (3, 32)
    assert [store.category(index) for index in range(3)] == ["Kyoto", "Lima", "Oslo"]
    assert store.text_embedding(0).dtype == np.float16
    assert store.text(0) == "customer 0"


def test_vectors_are_the_stores_own_and_outlive_it(store_path):
    store = headwater.Store(store_path)
    vectors = store.text_embeddings()
    assert np.shares_memory(vectors, store.text_embeddings())
    expected = vectors.copy()
    with pytest.raises(ValueError, match="read-only"):
        vectors[:] = 0
    del store
    np.testing.assert_array_equal(vectors, expected)


def test_int8_vectors_times_their_scales_are_near_the_float16_ones(store, int8_store):
    found = headwater.Store(int8_store)
    assert found.metadata()["embedding"]["text_encoding"] == "int8"
    vectors, scales = found.text_embeddings(), found.text_scales()
    assert (vectors.dtype, scales.dtype) == (np.int8, np.float32)
    assert (vectors.shape, scales.shape) == (store.text_embeddings().shape, (len(vectors),))
    wide = store.text_embeddings().astype(np.float32)
    np.testing.assert_array_equal(scales, np.abs(wide).max(axis=1) / np.float32(127))
    np.testing.assert_array_equal(vectors, np.rint(wide / scales[:, None]))
    error = np.abs(vectors * scales[:, None] - wide)
    assert (error <= 0.501 * scales[:, None]).all()
    assert error.any()
    np.testing.assert_array_equal(found.text_embedding(3), vectors[3])
    np.testing.assert_array_equal(found.column_embeddings(), store.column_embeddings())
    found.verify()


def test_int8_vectors_and_scales_are_the_stores_own(store, int8_store):
    found = headwater.Store(int8_store)
    for own in (found.text_embeddings, found.text_scales):
        assert np.shares_memory(own(), own())
        with pytest.raises(ValueError, match="read-only"):
            own()[:] = 0
    assert store.text_scales() is None


def test_vectors_may_be_asked_for_while_another_thread_folds_them(store_path):
    store = headwater.Store(store_path)
    vectors = store.text_embeddings()
    job = GramJob(len(vectors), vectors.shape[1], "texts", dtype="float16")
    is_done = threading.Event()

    def fold():
        while not is_done.is_set():
            Worker(job, threads=1).push(vectors)

    folding = threading.Thread(target=fold)
    folding.start()
    try:
        for _ in range(3000):
            store.text_embeddings()
    finally:
        is_done.set()
        folding.join()


def test_a_row_has_its_cells_and_neighbours(store):
    order = store.row("orders", 3)
    assert order["key"] == "3"
    assert order["time"] == np.datetime64("2023-01-01T00:03:00")
    assert order["cells"]["price"] == 0.375
    assert order["cells"]["order_id"] is True
    assert order["parents"] == {"orders.customer_id": 21}
    customer = store.row("customers", index=21)
    assert customer["cells"] == {
        "customer_id": True,
        "name": "customer 0",
        "city": "Oslo",
        "member": False,
        "note": "note 1",
    }
    assert customer["time"] is None
    children = customer["children"]["orders.customer_id"]
    assert children.dtype == np.uint32
    assert children.tolist() == list(range(3, 20_000, 40))
    assert store.row("customers", "121").keys() == customer.keys()
    assert store.row("customers", index=0)["cells"]["city"] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda store: store.row("order", 3), 'no table is called "order"'),
        (lambda store: store.row("orders", -1), 'no row of table "orders" has the key "-1"'),
        (lambda store: store.row("orders", index=20_000), "no row 20000; there are 20000"),
        (lambda store: store.row("orders", index=-1), "no row -1; there are 20000"),
        (
            lambda store: store.row("orders", index=10**50),
            "expected a number within 128 bits, found 10+",
        ),
        (lambda store: store.row("orders", 10**50), "expected a number within 128 bits, found 10+"),
        (lambda store: store.row("orders"), "expected a key or index"),
        (lambda store: store.row("orders", 1.5), "expected a str or an int, found float"),
        (lambda store: store.text(12), "no text 12; there are 12"),
        (lambda store: store.category(3), "no category 3; there are 3"),
        (lambda store: store.text_embedding(12), "no text 12"),
        (lambda store: store.text_embedding(-1), "no text -1"),
        (lambda store: store.text(-1), "no text -1"),
        (lambda store: store.category(-1), "no category -1"),
    ],
)
def test_missing_rows_and_texts_are_invalid_arguments(store, call, message):
    with pytest.raises(headwater.InvalidArgument, match=message):
        call(store)


def test_a_row_of_a_table_without_a_key_is_named_by_its_index(listed_store):
    store = headwater.Store(listed_store)
    message = (
        'row: expected index=..., because table "returns labels" has no key, found a key; give the '
        "number of the row, counted from 0, such as index=0"
    )
    for key in (3, "100|2023-01-01"):
        with pytest.raises(headwater.InvalidArgument, match=message):
            store.row("returns labels", key)
    assert store.row("returns labels", index=0)["cells"]["returned"] is True


SHARE = """
import sys, headwater
store = headwater.Store(sys.argv[1])
store.verify()
print("ready", flush=True)
sys.stdin.read()
"""


def proportional_bytes(process, folder):
    """Returns a process's share of the memory that is mapped from the files in a folder."""
    total, inside = 0, False
    for line in Path(f"/proc/{process.pid}/smaps").read_text().splitlines():
        if not line.split(":")[0].isidentifier():
            inside = str(folder) in line
        elif inside and line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024
    return total


def test_a_row_that_is_never_visible_has_the_time_nat(tmp_path):
    import pyarrow

    parents = pyarrow.table({"id": [1], "at": [np.datetime64("2020-01-01", "us")]})
    children = pyarrow.table({"id": [1, 2, 3], "parent": [1, 9, None]})
    schema = {
        "database": "family",
        "limits": {"unresolved_share": 1.0},
        "table": [
            {
                "name": "parents",
                "key": "id",
                "time": {"column": "at"},
                "columns": {"id": "identifier", "at": "timestamp"},
            },
            {
                "name": "children",
                "key": "id",
                "time": {"through": "parent"},
                "columns": {"id": "identifier", "parent": "identifier"},
                "references": [{"columns": "parent", "to": "parents"}],
            },
        ],
    }
    headwater.prepare({"parents": parents, "children": children}, schema, tmp_path / "db")
    store = headwater.Store(tmp_path / "db")
    times = [store.row("children", str(key))["time"] for key in (1, 2, 3)]
    assert times[0] == np.datetime64("2020-01-01")
    assert np.isnat(times[1])
    assert times[2] is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/PID/smaps, which is Linux's")
def test_eight_processes_share_the_pages_of_a_store(tmp_path):
    import pyarrow

    rows = 400_000
    texts = pyarrow.array([f"text {number}" for number in range(rows)])
    schema = {"database": "big", "table": [{"name": "t", "columns": {"x": "text"}}]}
    out = tmp_path / "db"
    size = headwater.prepare({"t": pyarrow.table({"x": texts})}, schema, out)["store_bytes"]
    assert size > 100e6
    command = [sys.executable, "-c", SHARE, str(out)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe) for _ in range(8)]
    try:
        assert [process.stdout.readline() for process in processes] == [b"ready\n"] * 8
        total = sum(proportional_bytes(process, out) for process in processes)
    finally:
        for process in processes:
            process.communicate(b"")
    assert 0.9 * size < total < 1.1 * size
