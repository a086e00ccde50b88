"""Whitens activations with the Gram matrix of them and a column of ones, folded under mpirun."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from job import done, mpirun

ROWS, COLUMNS = 40_000, 24

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    draws = np.random.default_rng(11)
    # Activations with dependent columns whose means are not 0.
    mixing = draws.standard_normal((COLUMNS, COLUMNS))
    x = np.tanh(draws.standard_normal((ROWS, COLUMNS)) @ mixing / 4) + draws.uniform(-2, 2, COLUMNS)
    # In the Gram of [x|1], the last row has the sums of the columns, and the corner is n.
    np.save(folder / "x.npy", np.hstack([x, np.ones((ROWS, 1))]))
    gram_file = folder / "g.npy"
    fold = ["headwater-reduce", "gram", "--input", str(folder / "x.npy"), "--out", str(gram_file)]
    said = done(mpirun(3, [*fold, "--threads", "1"]))
    gram = np.load(gram_file)

rows = gram[-1, -1]
mean = gram[-1, :-1] / rows
covariance = gram[:-1, :-1] / rows - np.outer(mean, mean)
variances, directions = np.linalg.eigh(covariance)
assert variances.min() > 0, variances
whitening = directions / np.sqrt(variances) @ directions.T
white = (x - mean) @ whitening

assert rows == ROWS
assert np.abs(white.mean(axis=0)).max() < 1e-10
assert np.abs(white.T @ white / ROWS - np.eye(COLUMNS)).max() < 1e-9
assert np.abs(x.T @ x / ROWS - np.eye(COLUMNS)).max() > 0.1
print("whiten: the covariance is that of white noise, by the Gram of digest", said["digest"])
