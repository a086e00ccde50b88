"""Kills all ranks of a fold; fewer ranks resume it, with the same digest."""

from __future__ import annotations

import tempfile
from pathlib import Path

from job import begun, done, gram_of_rows, kill, mpirun, ranks_of

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    gram = gram_of_rows(folder)
    alone = done(gram)

    kept = ["--checkpoint-dir", str(folder / "ck"), "--checkpoint-every", "0", "--resume"]
    with begun(mpirun(3, [*gram, *kept]), folder / "ck") as run:
        for process in ranks_of(run).values():
            kill(process)
        run.communicate(timeout=120)
    assert run.returncode != 0, "the run ended before it was killed"

    said = done(mpirun(2, [*gram, *kept]))
    assert said["ranks"] == 2, said
    assert said["resumed_nodes"] > 0, said
    assert said["digest"] == alone["digest"], (said, alone)
    print("resume: from", said["resumed_nodes"], "nodes the same digest,", said["digest"])
