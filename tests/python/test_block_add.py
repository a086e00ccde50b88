"""The bits of a Gram matrix equal those of an independent oracle: OpenBLAS on one thread.

Its dsyrk for Haswell sums the products of 256 rows in chains of fused multiply-adds, and then adds
the sums of these blocks, one after the other. Chunks of 256 rows, added one after the other, are
the same operations in the same order, so no bit may differ.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from headwater.reduce import GramJob, Reduction, Worker

# DGEMM_Q of OpenBLAS for Haswell.
BLOCK_ROWS = 256

# Prints the version and the kernel of the BLAS below scipy, and leaves the upper triangle of X^T X.
DSYRK = """
import ctypes, sys
import numpy as np
import scipy
from scipy.linalg import _fblas, blas

fortran = ctypes.CDLL(_fblas.__file__)
for name in ("scipy_openblas_get_corename", "openblas_get_corename"):
    if hasattr(fortran, name):
        getattr(fortran, name).restype = ctypes.c_char_p
        print(getattr(fortran, name)().decode())
rows = np.load(sys.argv[1])
np.save(sys.argv[2], blas.dsyrk(1.0, np.asfortranarray(rows), trans=1))
"""


@pytest.fixture
def dsyrk(tmp_path):
    """X^T X by the BLAS of scipy, above the diagonal; skips where that is another one."""
    pytest.importorskip("scipy")
    one_thread = {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}

    def product(rows):
        np.save(tmp_path / "x.npy", rows)
        command = [sys.executable, "-c", DSYRK, tmp_path / "x.npy", tmp_path / "c.npy"]
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env={**os.environ, **one_thread}
        )
        assert run.returncode == 0, run.stderr
        kernel = run.stdout.strip()
        if kernel != "Haswell":
            pytest.skip(f"the BLAS of scipy is no OpenBLAS for Haswell, but {kernel or 'another'}")
        return np.load(tmp_path / "c.npy")

    return product


def gram(rows, chunk_rows):
    job = GramJob(*rows.shape, "rows of a test", chunk_rows, "float64")
    worker, reduction = Worker(job), Reduction(job)
    worker.push(rows)
    reduction.receive(worker.portion())
    return reduction.result()


def blocks(count):
    """The rows of each block as OpenBLAS cuts them: the last two may be halves of what is left."""
    start = 0
    while start < count:
        left = count - start
        size = BLOCK_ROWS if left >= 2 * BLOCK_ROWS else left
        size = -(-left // 2) if BLOCK_ROWS < left < 2 * BLOCK_ROWS else size
        yield slice(start, start + size)
        start += size


@pytest.mark.parametrize("columns", [256, 1024])
@pytest.mark.parametrize("count", [1024, 1000])
def test_chunks_added_one_by_one_are_the_bits_of_openblas(dsyrk, columns, count):
    draws = np.random.default_rng(count)
    # Of many magnitudes, so that another order of the sums is seen.
    scales = 2.0 ** draws.integers(-20, 20, (count, 1))
    rows = draws.standard_normal((count, columns)) * scales
    upper = np.triu_indices(columns)
    expected = dsyrk(rows)[upper]
    added = np.zeros((columns, columns))
    for block in blocks(count):
        added += gram(rows[block], BLOCK_ROWS)
    assert added[upper].tobytes() == expected.tobytes()
    one_chain = gram(rows, count)[upper]
    assert np.mean(one_chain != expected) > 0.1
    assert np.all(np.abs(one_chain - expected) <= 1e-12 * (np.abs(rows).T @ np.abs(rows))[upper])
