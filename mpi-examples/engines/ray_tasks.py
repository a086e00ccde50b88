"""Moments of columns by Ray, in tasks and by Ray Data, with one digest for any partitions."""

from __future__ import annotations

import itertools

import numpy as np
import ray
import ray.data

from headwater.reduce import MomentsJob, PartitionedJob, Reduction, fold, merge, moments

ROWS, CHUNK = 40_000, 500


def main() -> None:
    """Folds by tasks that need no order, and by the blocks of a dataset."""
    rows = np.random.default_rng(3).standard_normal((ROWS, 8), np.float32)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    job = MomentsJob(ROWS, 8, "rows of ray_tasks.py", CHUNK)
    digests = {moments(rows, chunk_rows=CHUNK, shifts=0.0).digest}
    digests |= {of_tasks(job, rows, each) for each in (1_000, 7_500)}
    assert len(digests) == 1, digests
    print("ray_tasks: one digest of tasks, whatever their rows:", *digests)
    in_data, alone = of_dataset(rows), of_parts(rows)
    assert in_data == alone
    print("ray_tasks: the digest of a dataset's parts, by Ray and alone:", in_data)
    ray.shutdown()


def of_tasks(job: MomentsJob, rows: np.ndarray, each: int) -> str:
    """Folds each partition in a task, and merges portions in the order in which they end."""
    remote_fold, remote_merge = ray.remote(fold), ray.remote(merge)
    left = [remote_fold.remote(job, at, rows[at : at + each]) for at in range(0, ROWS, each)]
    while len(left) > 1:
        ended, left = ray.wait(left, num_returns=2)
        left.append(remote_merge.remote(job, *ended))
    return digest(job, ray.get(left[0]))


# Where the parts of a dataset begin; nobody has to know how long they are, and one is empty.
BOUNDS = [0, 1, 5_000, 5_000, 22_222, ROWS]
OF_PARTS = PartitionedJob(MomentsJob(None, 8, "parts of ray_tasks.py", CHUNK), len(BOUNDS) - 1)


def of_part(part: dict) -> dict:
    """Folds a part: an item of the dataset."""
    rows = np.asarray(part["rows"], np.float32).reshape(-1, 8)
    return {"portion": fold(OF_PARTS, part["part"], rows)}


def parts_of(rows: np.ndarray) -> list[dict]:
    """Returns the parts, each with its number."""
    pairs = enumerate(itertools.pairwise(BOUNDS))
    return [{"part": part, "rows": rows[begin:end]} for part, (begin, end) in pairs]


def of_dataset(rows: np.ndarray) -> str:
    """Folds the parts by Ray Data, which gives them in any order."""
    portions = ray.data.from_items(parts_of(rows)[::-1]).map(of_part).take_all()
    return digest(OF_PARTS, merge(OF_PARTS, *(of["portion"] for of in portions)))


def of_parts(rows: np.ndarray) -> str:
    """Folds the parts one after the other."""
    portions = [of_part(part)["portion"] for part in parts_of(rows)]
    return digest(OF_PARTS, merge(OF_PARTS, *portions))


def digest(job: MomentsJob | PartitionedJob, portion: bytes) -> str:
    """Returns the digest of a result."""
    reduction = Reduction(job)
    reduction.receive(portion)
    return reduction.digest


if __name__ == "__main__":
    main()
