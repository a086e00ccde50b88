"""Shows that a stream is the same for any number of ranks and threads, killed or not.

    python tests/python/digests.py STORE [--steps 200]

Prints the digest of the global batches of each run, and ends with status 1 when two differ.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import headwater

GLOBAL_BATCH = 32
KILLED_AFTER = 87
# Tensors of a batch as a whole, and tensors that depend on the other sequences of the batch.
OF_THE_BATCH = {
    "target_stype",
    "task_idx",
    "cat_emb_start",
    "cat_emb_count",
    "text_embed_ids",
    "text_batch_embeddings",
}


def samplers(store: str, world: int, threads: int) -> list[headwater.Sampler]:
    """Returns a sampler for each rank."""
    batch_size = GLOBAL_BATCH // world
    return [
        headwater.Sampler(
            store, rank, world, default_batch_size=batch_size, num_threads=threads, seed=1
        )
        for rank in range(world)
    ]


def rows(batch: dict[str, np.ndarray]) -> list[bytes]:
    """Returns the tensors of each sequence of a batch, with text vectors in place of text ids."""
    size = len(batch["target_pos"])
    vectors = batch["text_batch_embeddings"]
    parts = [array for name, array in batch.items() if name not in OF_THE_BATCH]
    result = []
    for row in range(size):
        is_text = (batch["semantic_types"][row] == 5) & (batch["is_null"][row] == 0)
        texts = vectors[batch["text_embed_ids"][row][is_text]]
        result.append(b"".join([texts.tobytes(), *(part[row].tobytes() for part in parts)]))
    return result


def global_batch(ranks: list[headwater.Sampler]) -> bytes:
    """Returns the digest of the next global batch, whose rows alternate between the ranks."""
    parts = [rows(sampler.next_train_batch()) for sampler in ranks]
    digest = hashlib.blake2b(digest_size=16)
    for of_all_ranks in zip(*parts, strict=True):
        for row in of_all_ranks:
            digest.update(row)
    return digest.digest()


def stream(store: str, steps: int, world: int, threads: int) -> list[bytes]:
    """Returns the digests of the first global batches."""
    ranks = samplers(store, world, threads)
    digests = [global_batch(ranks) for _ in range(steps)]
    for sampler in ranks:
        sampler.shutdown()
    return digests


def train(store: str, folder: str) -> None:
    """Takes batches until it is killed; saves its cursor after each."""
    ranks = samplers(store, 2, 1)
    with (Path(folder) / "digests").open("wb", buffering=0) as file:
        while True:
            file.write(global_batch(ranks))
            ranks[1].save_cursor(Path(folder) / "cursor")
            print("step", flush=True)


def killed_and_resumed(store: str, steps: int) -> list[bytes]:
    """Returns the digests of a run that is killed on two ranks and resumed on four."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, store, "--train", folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout
        for _ in range(KILLED_AFTER):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        cursor = headwater.Cursor.read(Path(folder) / "cursor")
        done = cursor.position["train/step"]
        written = (Path(folder) / "digests").read_bytes()
        digests = [written[at * 16 : at * 16 + 16] for at in range(done)]
        ranks = samplers(store, 4, 2)
        for sampler in ranks:
            sampler.resume(cursor)
        return digests + [global_batch(ranks) for _ in range(steps - done)]


def main() -> None:
    """Compares the runs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", help="a store that has been prepared")
    parser.add_argument("--steps", type=int, default=200, help="how many global batches")
    parser.add_argument("--train", metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.store, args.train)
    if args.steps <= KILLED_AFTER:
        parser.error(f"--steps must be more than {KILLED_AFTER}")
    print(f"digest of {args.steps} global batches of {GLOBAL_BATCH} sequences")
    seen = set()

    def show(what: str, digests: list[bytes]) -> None:
        digest = hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()
        seen.add(digest)
        print(f"  {what:52} {digest}", flush=True)

    for world in (1, 2, 4):
        for threads in (1, 2):
            what = f"{world} x {GLOBAL_BATCH // world} sequences, {threads} thread(s)"
            show(what, stream(args.store, args.steps, world, threads))
    what = f"2 ranks, killed after step {KILLED_AFTER}, resumed as 4"
    show(what, killed_and_resumed(args.store, args.steps))
    if len(seen) > 1:
        sys.exit("the runs differ")
    print("all the same")


if __name__ == "__main__":
    main()
