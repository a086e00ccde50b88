"""Folds activations while a JAX job trains: the same digest from one process and from two.

Without mpirun, the program starts itself under mpirun: once as one process with two devices, once
as two processes with one device each. The digest of a fold depends on its rows alone. The
activations are the same in both runs, because both sum the gradients of the same two shards.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

DEVICES, STEPS, BATCH, WIDTH = 2, 60, 64, 16
RANK = os.environ.get("OMPI_COMM_WORLD_RANK")


def main() -> None:
    """Runs both jobs and compares their digests."""
    digests = {digest_of_run(processes) for processes in (1, 2)}
    assert len(digests) == 1, digests
    print("train: one digest of the activations from one process and two,", *digests)


def digest_of_run(processes: int) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = ["mpirun", "--oversubscribe", "-n", str(processes), sys.executable, __file__]
        flags = f"--xla_force_host_platform_device_count={DEVICES // processes}"
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        run = subprocess.run(
            [*command, str(port), folder],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    # The digest decides, not the exit status of mpirun.
    assert run.stdout, f"the run has no result, and the exit status {run.returncode}"
    return run.stdout.split()[-1]


def train(rank: int, processes: int, port: str, folder: Path) -> None:
    """Runs one process of a job: trains, folds the activations of its devices, writes portions."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    from headwater.reduce import GramJob, Reduction, Worker

    if processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, rank)
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))
    by_rows, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["data"], []))

    def hidden(weights, x):
        return jnp.tanh(x @ weights["in"])

    def loss(weights, x, y):
        h = hidden(weights, x)
        return jnp.mean((h @ weights["out"] - y) ** 2), h

    @jax.jit
    def step(weights, x, y):
        (value, h), slopes = jax.value_and_grad(loss, has_aux=True)(weights, x, y)
        return jax.tree.map(lambda w, slope: w - 0.1 * slope, weights, slopes), value, h

    def shard_array(array, sharding):
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    draws = np.random.default_rng(0)
    sizes = {"in": (4, WIDTH), "out": (WIDTH, 1)}
    weights = {
        name: shard_array(draws.standard_normal(size, np.float32) / 2, everywhere)
        for name, size in sizes.items()
    }
    # The rows of the job are those of the first device, step by step, then those of the second.
    each = STEPS * BATCH // DEVICES
    job = GramJob(STEPS * BATCH, WIDTH, "the hidden layer of train.py", 64)
    workers = {
        device.id: Worker(job, place * each)
        for place, device in enumerate(mesh.devices)
        if device.process_index == rank
    }
    losses = []
    for number in range(STEPS):
        x = draws.standard_normal((BATCH, 4), np.float32)
        y = np.sin(x.sum(axis=1, keepdims=True))
        weights, value, h = step(weights, shard_array(x, by_rows), shard_array(y, by_rows))
        losses.append(float(value))
        for shard in h.addressable_shards:
            workers[shard.device.id].push(np.asarray(shard.data))
            if number % 20 == 19:
                portion = workers[shard.device.id].portion()
                (folder / f"{shard.device.id}-{number}.portion").write_bytes(portion)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 2, losses
    if processes > 1:
        multihost_utils.sync_global_devices("all portions are written")
    if rank == 0:
        reduction = Reduction(job)
        for file in folder.iterdir():
            reduction.receive(file.read_bytes())
        assert reduction.missing() == []
        print(reduction.digest)


if RANK is None:
    main()
else:
    _, port, folder = sys.argv
    train(int(RANK), int(os.environ["OMPI_COMM_WORLD_SIZE"]), port, Path(folder))
