"""Kills all ranks of a fold; fewer ranks resume it, with the same digest."""

from __future__ import annotations

import tempfile
from pathlib import Path

from job import begun, done, gram_of_rows, has_checkpoint, kill, mpirun, ranks_of, result

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    gram = gram_of_rows(folder)
    alone = done(gram)

    kept = ["--checkpoint-dir", str(folder / "ck"), "--checkpoint-every", "0", "--resume"]
    with begun(mpirun(3, [*gram, *kept]), has_checkpoint(folder / "ck")) as run:
        for process in ranks_of(run).values():
            kill(process)
        output, _ = run.communicate(timeout=120)
    assert result(output) is None, "the run ended before it was killed"

    said = done(mpirun(2, [*gram, *kept]))
    assert said["ranks"] == 2, said
    assert said["resumed_nodes"] > 0, said
    assert said["digest"] == alone["digest"], (said, alone)
    print("resume: from", said["resumed_nodes"], "nodes the same digest,", said["digest"])
