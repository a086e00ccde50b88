"""Token rows through Python: what a CPU second makes, and what a batch costs its consumer.

    cargo bench --bench events -- --keep FOLDER
    python benches/events.py FOLDER/latency-v1-0.db

Prints one JSON line: contexts and rows per CPU second of one thread, and the wall time of `next`
where the batch was made ahead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import headwater

BATCHES = 60


def main() -> None:
    """Measures both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", help="the event store")
    args = parser.parse_args()
    with headwater.Events(args.store, num_prefetch=0, num_threads=1) as events:
        next(events)
        before = time.process_time()
        contexts = 0
        for _ in range(BATCHES):
            batch = next(events)
            contexts += int(batch["inputs_segmentation"].max(axis=1).sum())
        seconds = time.process_time() - before
    waits = []
    with headwater.Events(args.store, num_prefetch=3, num_threads=1) as events:
        next(events)
        for _ in range(BATCHES):
            # A step of training, in which the next batch is made and this core stays awake.
            end = time.perf_counter() + 0.05
            while time.perf_counter() < end:
                pass
            start = time.perf_counter()
            batch = next(events)
            waits.append(time.perf_counter() - start)
    print(
        json.dumps(
            {
                "contexts_per_cpu_s": round(contexts / seconds),
                "rows_per_cpu_s": round(BATCHES * len(batch["inputs"]) / seconds),
                "consumer_us": round(statistics.median(waits) * 1e6, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
