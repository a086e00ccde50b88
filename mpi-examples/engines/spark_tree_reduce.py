"""A Gram matrix by Spark: one digest for any depth of the tree and any number of cores."""

from __future__ import annotations

import os
import sys

import numpy as np
from pyspark.sql import SparkSession

from headwater.reduce import GramJob, PartitionedJob, Reduction, fold, merge

ROWS, COLUMNS, PARTITIONS, CHUNK = 4_000, 6, 5, 100


def main() -> None:
    """Folds each partition by its number, and merges by the tree of Spark."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    rows = np.random.default_rng(4).standard_normal((ROWS, COLUMNS), np.float32)
    job = PartitionedJob(GramJob(None, COLUMNS, "spark_tree_reduce.py", CHUNK), PARTITIONS)

    def of_partition(part, of_part):
        return [fold(job, part, np.array(list(of_part), np.float32).reshape(-1, COLUMNS))]

    digests = set()
    for cores in (1, 2):
        builder = SparkSession.builder.master(f"local[{cores}]").config(
            "spark.ui.showConsoleProgress", "false"
        )
        with builder.getOrCreate() as spark:
            spark.sparkContext.setLogLevel("ERROR")
            # Spark decides which rows a partition has, and how many.
            partitions = spark.sparkContext.parallelize(rows.tolist(), PARTITIONS)
            for depth in (1, 2, 3):
                portions = partitions.mapPartitionsWithIndex(of_partition)
                whole = portions.treeReduce(lambda one, two: merge(job, one, two), depth)
                digests.add(digest(job, whole))
    alone = (of_partition(part, of) for part, of in enumerate(np.split(rows, PARTITIONS)))
    digests.add(digest(job, merge(job, *(portion for (portion,) in alone))))
    assert len(digests) == 1, digests
    print("spark_tree_reduce: one digest of 1 and 2 cores, of 3 depths, and alone:", *digests)


def digest(job: PartitionedJob, portion: bytes) -> str:
    """Returns the digest of a result."""
    reduction = Reduction(job)
    reduction.receive(portion)
    return reduction.digest


if __name__ == "__main__":
    main()
