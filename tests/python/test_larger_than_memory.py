"""Stores that memory does not hold, under a real limit of memory."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

import headwater
from pings import SCHEMA

ROWS = 150_000
# The memory that a preparation has beside what the process has before.
MORE = 160_000_000

# Joins a control group that leaves it some memory, and makes a store with what it is told.
PREPARED = """
import os, pathlib, sys
source, schema, out, memory, more, group = sys.argv[1:]
group = pathlib.Path(group)
if group.name:
    (group / "cgroup.procs").write_text(str(os.getpid()))
import headwater
limit = group / ("memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes")
used = group / ("memory.current" if limit.name == "memory.max" else "memory.usage_in_bytes")
if group.name:
    limit.write_text(str(int(used.read_text()) + int(more)))
print(headwater.prepare(source, schema, out, threads=2, memory=memory or None)["root"])
"""

# Joins a control group, and leaves itself a quarter of the store's size.
JOINED = """
import hashlib, json, os, pathlib, sys
store_path, size, group = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
if group.name:
    (group / "cgroup.procs").write_text(str(os.getpid()))
import numpy
import headwater
limit = group / ("memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes")
used = group / ("memory.current" if limit.name == "memory.max" else "memory.usage_in_bytes")
if group.name:
    limit.write_text(str(int(used.read_text()) + size // 4))
hasher = hashlib.blake2b()
"""

# Makes batches of events.
LIMITED_EVENTS = """
with headwater.Events(store_path, num_threads=1, batch_size=4, num_prefetch=1, seed=3) as events:
    threads = len(os.listdir("/proc/self/task"))
    for _ in range(10):
        hasher.update(next(events)["inputs"].tobytes())
print(json.dumps({"digest": hasher.hexdigest(), "threads": threads}))
"""

# Makes batches, after the store was refused where it is too large to be read into memory.
LIMITED = """
refused = None
if group.name:
    try:
        headwater.Store(store_path, populate=True)
    except headwater.LimitExceeded as error:
        refused = str(error)
sampler = headwater.Sampler(
    store_path, rank=0, world_size=1, seed=3, num_threads=1, default_sequence_length=64
)
threads = len(os.listdir("/proc/self/task"))
for _ in range(20):
    batch = sampler.next_train_batch()
    for name in sorted(batch):
        hasher.update(numpy.ascontiguousarray(batch[name]).tobytes())
sampler.shutdown()
print(json.dumps({"digest": hasher.hexdigest(), "threads": threads, "refused": refused}))
"""


@pytest.fixture(scope="module")
def group():
    """A control group below its own, whose memory can be limited."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    roots = {"memory": "/sys/fs/cgroup/memory", "": "/sys/fs/cgroup"}
    for _, controllers, path in lines:
        parent = Path(roots.get(controllers, "/nowhere") + path)
        try:
            made = Path(tempfile.mkdtemp(prefix="headwater-test-", dir=parent))
        except OSError:
            continue
        if any((made / name).exists() for name in ("memory.max", "memory.limit_in_bytes")):
            yield made
            made.rmdir()
            return
        made.rmdir()
    pytest.skip("needs a control group below its own, which this process may not make")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of some 100 MB, most of it vectors of texts; and its size."""
    import pyarrow

    out = tmp_path_factory.mktemp("big") / "db"
    numbers = range(ROWS)
    parents = pyarrow.table({"id": range(ROWS // 10), "note": [f"p {n}" for n in numbers[::10]]})
    children = pyarrow.table(
        {
            "id": numbers,
            "parent": [n * 7919 % (ROWS // 10) for n in numbers],
            "note": [f"text {n}" for n in numbers],
            "good": [n % 3 == 0 for n in numbers],
        }
    )
    schema = {
        "database": "big",
        "table": [
            {"name": "p", "key": "id", "columns": {"id": "identifier", "note": "text"}},
            {
                "name": "c",
                "key": "id",
                "columns": {
                    "id": "identifier",
                    "parent": "identifier",
                    "note": "text",
                    "good": "boolean",
                },
                "references": [{"columns": "parent", "to": "p"}],
            },
        ],
        "task": [
            {
                "name": "good",
                "cell": {"table": "c", "column": "good"},
                "sees_everything": True,
            }
        ],
    }
    return out, headwater.prepare({"p": parents, "c": children}, schema, out)["store_bytes"]


@pytest.fixture(scope="module")
def event_store(tmp_path_factory):
    """A store of some 100 MB of events; and its size."""
    import numpy
    import pyarrow

    draw = numpy.random.default_rng(0)
    count, probes = 4_500_000, 400_000
    of_probes = numpy.sort(draw.integers(0, probes, count))
    addresses = numpy.array([f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(probes)])
    pings = pyarrow.table(
        {
            "src_addr": addresses[of_probes],
            "dst_addr": addresses[draw.integers(0, probes, count)],
            "ip_version": numpy.full(count, 4),
            "event_time": 1_751_000_000_000_000 + numpy.arange(count) * 1_000_000,
            "rtt": draw.exponential(50, count),
        }
    )
    out = tmp_path_factory.mktemp("events") / "db"
    report = headwater.prepare({"pings": pings}, tomllib.loads(SCHEMA), out)
    return out, report["store_bytes"]


def batches(store, group, program=LIMITED):
    """Makes batches in a process of its own; returns what it says."""
    path, size = store
    # Pages that are in memory already count for nobody, so the limited process would read none.
    for file in path.rglob("*.bin"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    command = [sys.executable, "-c", JOINED + program, str(path), str(size), str(group)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
def test_p1_a_quarter_of_the_store_in_memory_gives_the_same_batches(store, group):
    free, limited = batches(store, ""), batches(store, group)
    assert limited["digest"] == free["digest"]
    # The limit was noticed: many threads wait for the disk.
    assert limited["threads"] >= free["threads"] + 20
    assert "expected a store of at most" in limited["refused"]


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
def test_p1_a_quarter_of_an_event_store_in_memory_gives_the_same_batches(event_store, group):
    free, limited = (batches(event_store, of, LIMITED_EVENTS) for of in ("", group))
    assert limited["digest"] == free["digest"]
    # The limit was noticed: many threads wait for the disk.
    assert limited["threads"] >= free["threads"] + 20


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
def test_p1_a_database_larger_than_memory_has_the_same_root(tmp_path, group):
    import numpy
    import pyarrow
    import pyarrow.parquet

    rows, parents = 3_000_000, 500_000
    numbers = numpy.arange(rows)
    one, other = (numbers * factor % parents for factor in (7919, 104729))
    source = tmp_path / "source"
    source.mkdir()
    tables = {
        "p": {"id": numbers[:parents]},
        "c": {"id": numbers, "parent": one, "other": other},
    }
    for name, columns in tables.items():
        path = source / f"{name}.parquet"
        pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=50_000)
    schema = tmp_path / "schema.toml"
    schema.write_text(
        """
        database = "big"
        [[table]]
        name = "p"
        key = "id"
        columns = { id = "identifier" }
        [[table]]
        name = "c"
        key = "id"
        columns = { id = "identifier", parent = "identifier", other = "identifier" }
        references = [{ columns = "parent", to = "p" }, { columns = "other", to = "p" }]
        """
    )

    def prepared(name, memory, group=""):
        out = tmp_path / name
        words = [source, schema, out, memory, MORE, group]
        command = [sys.executable, "-c", PREPARED, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    free = prepared("free", "")
    assert free.returncode == 0, free.stderr
    for name, memory in [("told", "32MB"), ("by itself", "")]:
        limited = prepared(name, memory, group)
        assert limited.returncode == 0, (name, limited.returncode, limited.stderr)
        assert limited.stdout == free.stdout
    # All in memory is more than the limit.
    assert prepared("in memory", "10GB", group).returncode == -signal.SIGKILL


def test_a_store_is_read_into_memory_on_request(store_path):
    store = headwater.Store(store_path, populate=True)
    files = [path for path in Path(store_path).rglob("*.bin") if path.is_file()]
    assert store.warm() == sum(path.stat().st_size for path in files)
    with pytest.raises(TypeError):
        headwater.Store(store_path, True)  # type: ignore[misc]
