"""Measures the sampler on a database with few children, whose contexts fill no sequence.

    python benches/sparse.py [--work FOLDER] [--record FILE]

Customers have none to three orders, and these one or two lines; no row is shared, so that a context
ends after a few rows, where one of TPC-H fills every sequence. For sequences of several lengths,
and for 1,024 cells with shorter ones to choose from (`sequence_buckets`), it tells what a batch
costs on one core, what share of its cells is padding, and its bytes. Then it trains `confluence` on
sequences of 256 cells, with and without shorter ones.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import prepare
import pyarrow as pa
import sampler

CUSTOMERS = 200_000
LENGTHS = (1024, 512, 256, 128)
BUCKETS = (512, 256, 128, 64, 32)
TRAINED_LENGTH = 256
FORMS = {"full": [], "compact_texts_global": ["--compact", "--texts", "global"]}
SCHEMA = """
database = "sparse"

[[table]]
name = "customers"
key = "id"
time = { column = "since" }
[table.columns]
id = "identifier"
since = "timestamp"
age = "numerical"
city = "categorical"
note = "text"

[[table]]
name = "orders"
key = "id"
time = { column = "at" }
references = [{ columns = "customer", to = "customers" }]
[table.columns]
id = "identifier"
customer = "identifier"
at = "timestamp"
total = "numerical"
paid = "boolean"

[[table]]
name = "lines"
time = { through = "order" }
references = [{ columns = "order", to = "orders" }]
[table.columns]
order = "identifier"
price = "numerical"
kind = "categorical"
words = "text"

[[task]]
name = "total"
cell = { table = "orders", column = "total" }
"""


def tables() -> dict[str, pa.Table]:
    """Returns the tables, the same at each call."""
    draw = np.random.Generator(np.random.Philox(1))

    def times(count: int, after: int) -> pa.Array:
        return pa.array(draw.integers(0, 10**15, count) + after).cast(pa.timestamp("us"))

    def words(prefix: str, different: int, count: int) -> list[str]:
        return [f"{prefix} {number}" for number in draw.integers(0, different, count)]

    customers = np.arange(CUSTOMERS)
    of_orders = np.repeat(customers, draw.integers(0, 4, CUSTOMERS))
    orders = np.arange(len(of_orders))
    of_lines = np.repeat(orders, draw.integers(1, 3, len(orders)))
    return {
        "customers": pa.table(
            {
                "id": customers,
                "since": times(CUSTOMERS, 0),
                "age": draw.normal(40, 9, CUSTOMERS),
                "city": words("city", 300, CUSTOMERS),
                "note": words("note", 50_000, CUSTOMERS),
            }
        ),
        "orders": pa.table(
            {
                "id": orders,
                "customer": of_orders,
                "at": times(len(orders), 10**15),
                "total": draw.normal(100, 30, len(orders)),
                "paid": draw.integers(0, 2, len(orders)).astype(bool),
            }
        ),
        "lines": pa.table(
            {
                "order": of_lines,
                "price": draw.normal(50, 20, len(of_lines)),
                "kind": words("kind", 40, len(of_lines)),
                "words": words("thing", 80_000, len(of_lines)),
            }
        ),
    }


def made_store(work: Path) -> Path:
    """Returns the store, and prepares it first if it is not there."""
    import headwater

    store = work / "sparse.db"
    if not store.exists():
        work.mkdir(parents=True, exist_ok=True)
        schema = work / "sparse.toml"
        schema.write_text(SCHEMA)
        headwater.prepare(tables(), schema, store)
    return store


def trained(store: Path, work: Path, buckets: list[int]) -> dict[str, float]:
    """Returns what a step of training costs after the first ones, which compile it."""
    out = work / "sparse-run"
    shutil.rmtree(out, ignore_errors=True)
    settings = [
        f"data.stores=['{store}']", f"data.sequence_length={TRAINED_LENGTH}",
        f"data.sequence_buckets={buckets}", "optimizer.steps=60", "run.log_every=20",
        "run.evaluate_every=0", "run.boosting=false", "run.checkpoint_every=60",
        "run.evaluate_batches=1", "run.threads=1",
        # A run scores all seeds of test at its end.
        "data.split_ratios=[0.98, 0.01, 0.01]",
    ]  # fmt: skip
    command = [sys.executable, "-m", "confluence.cli", "train", "--config", "cpu-small"]
    command += [word for setting in settings for word in ("--set", setting)]
    subprocess.run([*command, "--out", str(out)], check=True, capture_output=True)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    speeds = [line["speed"] for line in lines if "speed" in line][1:]
    mean = {
        name: statistics.mean(speed[name] for speed in speeds)
        for name in ("step_cpu_seconds", "step_seconds", "padding")
    }
    losses = [line["loss"] for line in lines if "loss" in line]
    return mean | {"last_loss": losses[-1], "compiled_steps": speeds[-1]["compiled_steps"]}


def main() -> None:
    """Measures, prints and records."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=prepare.HERE.parent / "target" / "bench")
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path, help="write the figures here")
    args = parser.parse_args()
    record = prepare.heading(
        "a database with few children, B=32 width 16, one core, batches of train"
    )
    store = made_store(args.work)

    def measured(form: str, length: int, *more: str) -> dict[str, float]:
        command = [sampler.HEADWATER, "bench", str(store), "--threads", "1", *FORMS[form]]
        command += ["--batches", str(args.batches), "--sequence-length", str(length), *more]
        found = sampler.last_line(command, sampler.ONE_CORE)
        names = ("cpu_ms_per_batch", "padding_share", "rows_per_sequence", "bytes_per_batch")
        return {name: found[name] for name in names}

    buckets = ["--sequence-buckets", ",".join(map(str, BUCKETS))]
    kinds = {str(length): (length,) for length in LENGTHS}
    kinds["1024, shorter where it fits"] = (1024, *buckets)
    rounds = [
        {form: {kind: measured(form, *of) for kind, of in kinds.items()} for form in FORMS}
        for _ in range(args.rounds)
    ]
    record |= {
        form: {kind: sampler.medians([one[form][kind] for one in rounds]) for kind in kinds}
        for form in FORMS
    }
    shorter = [length for length in BUCKETS if length < TRAINED_LENGTH]
    runs = [
        {kind: trained(store, args.work, of) for kind, of in (("one", []), ("shorter", shorter))}
        for _ in range(args.rounds)
    ]
    record["confluence, cpu-small, S=256"] = {
        kind: sampler.medians([one[kind] for one in runs]) for kind in runs[0]
    }
    prepare.publish(record, args.record)


if __name__ == "__main__":
    main()
