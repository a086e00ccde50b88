"""Fixtures: the demo shop as a store, a tiny model, and a finished run of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
import runs
from confluence import config

# One layer is traced in half the time of two, and each microbatch is a call.
TINY = [
    "model.width=16", "model.heads=2", "model.layers=1", "model.hidden=32",
    "model.rematerialise=false", "model.epochs=false", "data.batch_size=8",
    "data.sequence_length=40", "data.max_rows=12", "data.child_width=3",
    "data.tasks=['churn', 'spend', 'products.material']",
    "optimizer.steps=24", "optimizer.warmup_steps=4", "optimizer.mean_share=0.5",
    "optimizer.microbatches=4",
    "run.evaluate_every=12", "run.evaluate_batches=2", "run.checkpoint_every=5",
    "run.log_every=6", "run.threads=1", "run.boosting=false",
]  # fmt: skip


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    headwater_command = Path(sys.executable).parent / "headwater"
    subprocess.run([headwater_command, "demo-data", folder / "data"], check=True)
    # Fewer seeds, of val and test above all, since every run scores all of those at its end.
    for task in ("task_churn.csv", "task_spend.csv"):
        header, *lines = (folder / "data" / task).read_text().splitlines(keepends=True)
        for_training = [line for line in lines if line.endswith(",train\n")]
        others = [line for line in lines if not line.endswith(",train\n")]
        (folder / "data" / task).write_text(header + "".join(for_training[::10] + others[::30]))
    headwater.prepare(folder / "data", folder / "data/schema.toml", folder / "store", dimension=32)
    return folder / "store"


@pytest.fixture(scope="session")
def int8_store(demo_store):
    """The same store with text vectors of 8-bit integers."""
    data, out = demo_store.parent / "data", demo_store.parent / "int8"
    headwater.prepare(data, data / "schema.toml", out, dimension=32, text_vectors="int8")
    return out


@pytest.fixture(scope="session")
def tiny(demo_store):
    """The settings of a run of a few seconds, as `--set` takes them."""
    return [f"data.stores={demo_store}", *TINY]


@pytest.fixture(scope="session")
def tiny_config(tiny):
    return config.load(None, tiny)


@pytest.fixture(scope="session")
def whole(tiny, tmp_path_factory):
    """The folder of a finished, uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    finished = runs.run(tiny, out)
    assert finished.returncode == 0, finished.stderr
    assert "churn" in finished.stdout
    return out


@pytest.fixture
def small_disk(tmp_path):
    """The folder of a disk of 64 MB, and a function that gives it another size."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(*options):
        return subprocess.run(["mount", *options, disk], capture_output=True, text=True)

    if os.geteuid() != 0:
        pytest.skip("only root can make a small disk")
    mounted = mount("-t", "tmpfs", "-o", "size=64m", "none")
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield disk, lambda size: mount("-o", f"remount,size={size}").check_returncode()
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.fixture
def full_disk(small_disk):
    """The folder of a disk without room for another byte."""
    disk, resize = small_disk
    resize("4k")
    (disk / "others").write_bytes(bytes(4096))
    return disk
