"""A sum of arrays by Beam: one digest, in whatever bundles the runner combines."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam
import numpy as np

from headwater.reduce import Reduction, SumJob, fold, merge

LEAVES, COLUMNS = 40, 16


class Sum(beam.CombineFn):
    """Adds up numbered leaves; what is accumulated is a portion."""

    def __init__(self, job: SumJob) -> None:
        self.job = job

    def create_accumulator(self) -> bytes:
        """Returns the portion of no leaf."""
        return merge(self.job)

    def add_input(self, portion: bytes, leaf: tuple[int, dict[str, np.ndarray]]) -> bytes:
        """Adds a leaf with its number."""
        return merge(self.job, portion, fold(self.job, *leaf))

    def merge_accumulators(self, portions: Iterable[bytes]) -> bytes:
        """Merges portions of any leaves."""
        return merge(self.job, *portions)

    def extract_output(self, portion: bytes) -> str:
        """Returns the digest of the sum."""
        reduction = Reduction(self.job)
        reduction.receive(portion)
        return reduction.digest


def main() -> None:
    """Adds up leaves such as a GPU makes: the Gram matrix of a chunk in float32, and a loss."""
    draws = np.random.default_rng(5)
    chunks = [draws.standard_normal((200, COLUMNS), np.float32) for _ in range(LEAVES)]
    leaves = [
        (number, {"gram": chunk.T @ chunk, "loss": np.float64(chunk.mean())})
        for number, chunk in enumerate(chunks)
    ]
    job = SumJob(LEAVES, leaves[0][1], "beam_combine.py")
    combine = Sum(job)
    alone = combine.extract_output(merge(job, *(fold(job, *leaf) for leaf in leaves)))
    for order in (leaves, leaves[::-1]):
        with beam.Pipeline(runner="DirectRunner") as pipeline:
            found = pipeline | beam.Create(order) | beam.CombineGlobally(combine)
            found | beam.Map(equals, alone)
    print("beam_combine: one digest of the direct runner and alone:", alone)


def equals(found: str, wanted: str) -> None:
    """Fails the pipeline if a digest is another."""
    assert found == wanted, (found, wanted)


if __name__ == "__main__":
    main()
