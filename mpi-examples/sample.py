"""Samples under mpirun, kills all ranks and resumes with fewer: the batches of one process."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from job import begun, kill, mpirun, ranks_of

STEPS, KILLED_AFTER = 600, 60
STORE = Path(__file__).parents[1] / "checkpoints" / "store-v4-small"


def digests(folder: Path) -> list[str]:
    """Returns the digests of the global batches that a run has written."""
    path = folder / "digests.txt"
    return path.read_text().splitlines() if path.exists() else []


def sample(folder: Path) -> list[str]:
    """Returns the command that samples into a folder, or continues there."""
    folder.mkdir(exist_ok=True)
    return ["mpi-sample", str(STORE), str(folder), str(STEPS)]


with tempfile.TemporaryDirectory() as name:
    alone, killed = Path(name) / "alone", Path(name) / "killed"
    # The files decide, not the exit status of mpirun, which is 0 also when all ranks were killed.
    subprocess.run(mpirun(1, sample(alone)), timeout=120)
    assert len(digests(alone)) == STEPS
    assert len(set(digests(alone))) == STEPS

    command = sample(killed)
    with begun(mpirun(3, command), lambda: len(digests(killed)) > KILLED_AFTER) as run:
        for process in ranks_of(run).values():
            kill(process)
        run.communicate(timeout=120)
    done = len(digests(killed))
    assert KILLED_AFTER < done < STEPS, "the run ended before it was killed"

    subprocess.run(mpirun(2, command), timeout=120)
    assert digests(killed) == digests(alone)
    print(f"sample: {done} steps on 3 ranks, the rest on 2, the batches of one process")
