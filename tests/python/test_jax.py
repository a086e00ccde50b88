"""`headwater.jax.gram`: one result for any number of processes and devices."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes  # noqa: F401 - gives NumPy the name bfloat16
import numpy as np
import pytest

from child_processes import saved_by
from headwater.reduce import GramJob, Reduction, Worker

# JAX warns if a process that has loaded it forks, so only child processes load it.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed"),
]

ROWS, COLUMNS, CHUNK_ROWS = 4800, 17, 100

# One process of a run: folds each array and saves the Gram matrices.
FOLDING = """
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from headwater import InvalidArgument
from headwater.jax import gram

rows = np.load(sys.argv[5])
devices = jax.device_count()
mesh = jax.make_mesh((devices,), ("rows",), axis_types=(AxisType.Auto,))
square = jax.make_mesh((2, devices // 2), ("rows", "same"), axis_types=(AxisType.Auto,) * 2)
ways = {
    "sharded": NamedSharding(mesh, PartitionSpec("rows")),
    "replicated": NamedSharding(mesh, PartitionSpec()),
    "both": NamedSharding(square, PartitionSpec("rows")),
}
found = {}
for dtype in (jnp.float32, jnp.float16, jnp.bfloat16):
    for way, sharding in ways.items():
        narrow = rows.astype(dtype)
        x = jax.make_array_from_callback(rows.shape, sharding, lambda index: narrow[index])
        found[f"{dtype.__name__} {way}"] = gram(x, chunk_rows=100)
found["here alone"] = gram(jnp.asarray(rows), chunk_rows=100)
for wrong, words in [(700, f"; use chunk_rows={600 if devices == 4 else 400}")]:
    try:
        gram(jax.device_put(rows, ways["sharded"]), chunk_rows=wrong)
    except InvalidArgument as error:
        assert words in str(error), error
    else:
        raise AssertionError("no error")
try:
    gram(jax.device_put(rows.T, ways["sharded"].update(spec=PartitionSpec(None, "rows"))))
except InvalidArgument as error:
    assert "along its first axis only" in str(error), error
else:
    raise AssertionError("no error")
np.savez(f"{out}-{process}.npz", **found)
"""


def folded_by(processes, devices_each, folder):
    """Returns the Gram matrices of each process."""
    out = folder / f"of-{processes}"
    return saved_by(FOLDING, processes, devices_each, out, folder / "x.npy", seconds=120)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(2).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def plainly(rows, dtype):
    of = GramJob(ROWS, COLUMNS, "rows", CHUNK_ROWS, dtype)
    worker, reduction = Worker(of), Reduction(of)
    worker.push(rows.astype(dtype))
    reduction.receive(worker.portion())
    return reduction.result()


def test_p1_processes_and_devices_change_no_bit(tmp_path, rows):
    np.save(tmp_path / "x.npy", rows)
    everybody = folded_by(1, 4, tmp_path) + folded_by(3, 4, tmp_path) + folded_by(2, 6, tmp_path)
    assert len(everybody) == 6
    for found in everybody:
        assert len(found) == 10
        for name, result in found.items():
            dtype = "float32" if name == "here alone" else name.split()[0]
            assert result.tobytes() == plainly(rows, dtype).tobytes(), name


ROUNDS = """
from headwater.jax import _rounds

for processes in range(1, 70):
    has = [{rank} for rank in range(processes)]
    received = [0] * processes
    for pairs in _rounds(processes):
        assert all(len(set(side)) == len(pairs) for side in zip(*pairs))
        sent = [(receiver, set(has[sender])) for sender, receiver in pairs]
        for receiver, ranks in sent:
            has[receiver] |= ranks
            received[receiver] += 1
    assert has == [set(range(processes))] * processes, processes
    assert max(received) <= processes.bit_length(), processes
"""


def test_each_process_has_the_sums_of_all_after_a_few_rounds():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", ROUNDS], check=True, timeout=120, env=environment)


ALONE = """
import sys
import jax
import numpy as np
from headwater import InvalidArgument
from headwater.jax import gram

rows = np.load(sys.argv[1])
plain = np.load(sys.argv[2]).tobytes()
assert gram(rows, chunk_rows=100).tobytes() == plain
assert gram(jax.numpy.asarray(rows), chunk_rows=100, threads=1).tobytes() == plain
assert gram(rows).tobytes() != plain
assert gram(rows).tobytes() == gram(rows, chunk_rows=4096).tobytes()
assert gram(rows).tobytes() != gram(rows, chunk_rows=4097).tobytes()
for arguments, words in [
    ((rows[0],), "found the shape (17,)"),
    ((jax.numpy.zeros((3, 2), int),), 'or "bfloat16", found "int32"'),
    ((rows[:0],), "expected at least one row, found none"),
    ((rows.tolist(),), "expected a JAX or NumPy array, found list; convert it"),
    ((np.ma.masked_less(rows, 0),), "found a masked array"),
]:
    try:
        gram(*arguments)
    except InvalidArgument as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
for traced in (jax.jit, jax.vmap):
    try:
        traced(gram)(jax.numpy.asarray(rows)[None])
    except InvalidArgument as error:
        assert "found a JAX tracer" in str(error), error
    else:
        raise AssertionError("traced")
"""


def test_one_process_with_one_device_folds_any_array(tmp_path, rows):
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "plain.npy", plainly(rows, "float32"))
    command = [sys.executable, "-c", ALONE, tmp_path / "x.npy", tmp_path / "plain.npy"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run(command, check=True, timeout=120, env=environment)


def test_the_package_imports_without_jax():
    script = "import sys; sys.modules['jax'] = None; import headwater; headwater.reduce.GramJob"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, cwd=Path.home())
