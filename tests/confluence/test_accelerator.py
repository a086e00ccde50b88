"""On an accelerator a run repeats, and goes on after a kill, with the same bits."""

import os
import random
import subprocess
import sys

import pytest

from runs import records, results, run, start_run, wait_for_step

# Runs that follow each other share the memory of the accelerator with one that is being killed.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
SETTINGS = {
    "dense-float32": ["model.compute='float32'"],
    "dense-bfloat16": ["model.compute='auto'"],
    "structured-bfloat16": ["model.compute='auto'", "model.attention='structured'"],
    "psum-masked-cells": ["optimizer.microbatches=0", "data.mask_share=0.2"],
}
# Of 12 leaves, in one row each; the sums as they come, on the default device.
ADDING = """
import jax.numpy as jnp
import numpy as np
from headwater.jax import TreeSum

leaves = np.random.default_rng(1).standard_normal((12, 1000)).astype(np.float32)
def plain(of):
    if len(of) == 1:
        return of[0]
    half = 1 << (len(of) - 1).bit_length() - 1
    return plain(of[:half]) + plain(of[half:])
total = TreeSum(12)
for number in total.numbers:
    total.push(jnp.array(leaves[number]))
found = total.whole()
assert np.asarray(found).tobytes() == plain(leaves).tobytes()
print(found.device.platform)
"""


@pytest.fixture(scope="module")
def accelerator():
    """The name of the accelerator, asked for in another process: this one must not take it."""
    asked = "import jax; print(jax.default_backend(), jax.devices()[0].device_kind)"
    found = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=200
    ).stdout
    if found.startswith("cpu"):
        pytest.skip("JAX has no accelerator here")
    return found


@pytest.mark.parametrize("kind", SETTINGS)
def test_p2_a_run_on_an_accelerator_repeats_and_resumes_to_the_bit(
    kind, accelerator, tiny, tmp_path
):
    settings = [*tiny, *SETTINGS[kind]]
    for name in ("one", "again"):
        finished = run(settings, tmp_path / name)
        assert finished.returncode == 0, finished.stderr
    assert records(tmp_path / "again") == records(tmp_path / "one")
    killed = start_run(settings, tmp_path / "killed")
    try:
        wait_for_step(killed, tmp_path / "killed", random.Random(kind).choice([5, 10, 12, 15]))
    finally:
        killed.kill()
        killed.communicate()
    finished = run(settings, tmp_path / "killed", "--resume")
    assert finished.returncode == 0, finished.stderr
    assert records(tmp_path / "killed") == records(tmp_path / "one")
    assert results(tmp_path / "killed") == results(tmp_path / "one")


def test_p9_a_tree_sum_has_the_same_bits_on_an_accelerator(accelerator):
    added = subprocess.run([sys.executable, "-c", ADDING], capture_output=True, text=True)
    assert added.returncode == 0, added.stderr
    assert added.stdout.strip() == accelerator.split()[0].replace("cuda", "gpu")
