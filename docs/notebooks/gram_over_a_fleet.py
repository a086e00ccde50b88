# %% [markdown]
# # A Gram over a fleet
#
# The Gram matrix of rows X is the sum of the products of each two columns, X^T X. Here several
# processes fold parts of the rows, one of them dies, and the result has the same bits as that of
# one process. It takes seconds.
#
# ## The rows
#
# 40,000 rows of 16 numbers in a file that all processes can read.

# %%
import numpy as np

rows = np.random.default_rng(5).standard_normal((40_000, 16)).astype(np.float32)
np.save("X.npy", rows)

# %% [markdown]
# ## In one process
#
# One call folds the file. The digest names the bits of the result.

# %%
import headwater
from headwater import reduce

alone = reduce.gram("X.npy")
print(alone.value.shape, np.allclose(alone.value, rows.astype(float).T @ rows))

# %% [markdown]
# ```text
# (16, 16) True
# ```
#
# Floating-point sums depend on their order. headwater fixes the order: rows are folded in chunks
# of 4,096, and the chunks are added along a tree that their number alone determines. So it does
# not matter who folds which chunk.
#
# ## A worker
#
# This program folds the rows from `first` to `last` and writes a portion: the sums of its chunks,
# with the description of the job and a digest. A fleet would run it on many machines.

# %%
import subprocess
import sys
from pathlib import Path

Path("worker.py").write_text("""
import sys

import numpy as np

from headwater.reduce import GramJob, Worker

first, last = map(int, sys.argv[1:])
rows = np.load("X.npy", mmap_mode="r")
job = GramJob(*rows.shape, data="X", chunk_rows=4096)
worker = Worker(job, first)
worker.push(rows[first:last])
with open(f"{first}.portion", "wb") as file:
    file.write(worker.portion())
""")
fleet = {}
for first in [0, 8192, 16384, 24576, 32768]:  # whole chunks
    last = min(first + 8192, len(rows))
    fleet[first] = subprocess.Popen([sys.executable, "worker.py", str(first), str(last)])
    if first == 16384:
        fleet[first].kill()  # a machine dies
print("ended without a portion:", [first for first, one in fleet.items() if one.wait() != 0])

# %% [markdown]
# ```text
# ended without a portion: [16384]
# ```
#
# ## What arrived
#
# A reduction takes portions in any order, here the last one first. It knows which rows are
# missing.

# %%
job = reduce.GramJob(*rows.shape, data="X", chunk_rows=4096)
reduction = reduce.Reduction(job)
for path in sorted(Path().glob("*.portion"), reverse=True):
    reduction.receive(path.read_bytes())
print(reduction.missing())

# %% [markdown]
# ```text
# [(16384, 24576)]
# ```
#
# Another worker folds them. A portion that comes twice changes nothing, so a worker that was only
# slow does no harm.

# %%
subprocess.run([sys.executable, "worker.py", "16384", "24576"], check=True)
reduction.receive(Path("16384.portion").read_bytes())
reduction.receive(Path("16384.portion").read_bytes())
print(reduction.missing())
print("the bits of one process:", reduction.digest == alone.digest)
print("and so the same numbers:", np.array_equal(reduction.result(), alone.value))

# %% [markdown]
# ```text
# []
# the bits of one process: True
# and so the same numbers: True
# ```
#
# ## A portion that does not belong here
#
# A byte of a portion flips on its way. The digest of the portion tells.

# %%
damaged = bytearray(Path("0.portion").read_bytes())
damaged[-40] ^= 1
try:
    reduction.receive(bytes(damaged))
except headwater.Corrupt as error:
    print("refused:", str(error)[:40])

# %% [markdown]
# ```text
# refused: the portion is damaged: its bytes do not
# ```
#
# Under MPI, over a shared folder and in Dask, Ray, Spark and Beam the same portions travel by
# other ways: [statistics](../statistics.md).
