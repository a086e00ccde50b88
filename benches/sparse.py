"""Measures the sampler on a database with few children, whose contexts fill no sequence.

    python benches/sparse.py [--work FOLDER] [--record FILE]

Customers have none to three orders, and these one or two lines; no row is shared, so that a context
ends after a few rows, where one of TPC-H fills every sequence. For sequences of several lengths it
tells what a batch costs on one core, what share of its cells is padding, and its bytes: what is
left to gain by sequences of several lengths.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import prepare
import pyarrow as pa
import sampler

CUSTOMERS = 200_000
LENGTHS = (1024, 512, 256, 128)
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

    def measured(form: str, length: int) -> dict[str, float]:
        command = [sampler.HEADWATER, "bench", str(store), "--threads", "1", *FORMS[form]]
        command += ["--batches", str(args.batches), "--sequence-length", str(length)]
        found = sampler.last_line(command, sampler.ONE_CORE)
        names = ("cpu_ms_per_batch", "padding_share", "rows_per_sequence", "bytes_per_batch")
        return {name: found[name] for name in names}

    rounds = [
        {form: {length: measured(form, length) for length in LENGTHS} for form in FORMS}
        for _ in range(args.rounds)
    ]
    record |= {
        form: {
            str(length): sampler.medians([one[form][length] for one in rounds])
            for length in LENGTHS
        }
        for form in FORMS
    }
    prepare.publish(record, args.record)


if __name__ == "__main__":
    main()
