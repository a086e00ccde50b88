"""A training run to be killed: takes global batches of 12 and saves its cursor now and then.

    python tests/python/training.py STORE FOLDER RANKS PREFETCH STEPS

Resumes from the cursor in the folder, if there is one, and runs to the given step. Prints `begun`,
and then writes the digest of each step to the log of the folder.
"""

import sys
from pathlib import Path

import headwater
from digests import global_batch

GLOBAL_BATCH = 12
SAVED_EVERY = 3


def main(store: str, folder: Path, world: int, prefetch: int, steps: int) -> None:
    """Takes the batches of all ranks until `steps` steps are done."""
    size = GLOBAL_BATCH // world
    shape = {"default_batch_size": size, "default_sequence_length": 64, "max_rows": 16}
    ranks = [
        headwater.Sampler(store, rank, world, num_prefetch=prefetch, seed=7, **shape)
        for rank in range(world)
    ]
    cursor = folder / "cursor"
    step = 0
    if cursor.exists():
        step = headwater.Cursor.read(cursor).position["train/step"]
        for rank in ranks:
            rank.resume(cursor)
    with (folder / "log").open("a", buffering=1) as log:
        print("begun", flush=True)
        for at in range(step, steps):
            log.write(f"{at} {global_batch(ranks).hex()}\n")
            if (at + 1) % SAVED_EVERY == 0:
                ranks[at % world].save_cursor(cursor)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
