"""Kills one rank of a fold; the others fold its rows, with the same digest."""

from __future__ import annotations

import tempfile
from pathlib import Path

from job import begun, done, gram_of_rows, has_checkpoint, kill, mpirun, ranks_of, result

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    gram = gram_of_rows(folder)
    alone = done(gram)

    kept = ["--checkpoint-dir", str(folder / "ck"), "--checkpoint-every", "0"]
    command = mpirun(3, [*gram, *kept], "--with-ft", "ulfm")
    with begun(command, has_checkpoint(folder / "ck")) as run:
        kill(ranks_of(run)[2])
        output, _ = run.communicate(timeout=120)

    said = result(output)
    assert said is not None, "the run has no result"
    assert said["lost_ranks"] == [2], said
    assert said["digest"] == alone["digest"], (said, alone)
    print("survive: without rank 2 the same digest,", said["digest"])
