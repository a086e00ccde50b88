"""A small shop, the data of many tests."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path

SCHEMA = """
database = "shop"

[[table]]
name = "customers"
key = "customer_id"
[table.columns]
customer_id = "identifier"
name = "text"
city = "categorical"
member = "boolean"
note = "text"

[[table]]
name = "orders"
key = "order_id"
time = { column = "placed_at" }
[table.columns]
order_id = "identifier"
customer_id = "identifier"
price = "numerical"
placed_at = "timestamp"
[[table.references]]
columns = "customer_id"
to = "customers"

[[task]]
name = "price"
cell = { table = "orders", column = "price" }
"""

SQL_TASK = """
[[task]]
name = "spending"
[task.derived]
anchor = "customers"
sql = '''
SELECT customer_id, TIMESTAMP '2024-01-01' AS at, sum(price) AS spent
FROM orders GROUP BY customer_id;  -- in no order
'''
key = "customer_id"
time = "at"
target = "spent"
type = "numerical"
"""

# A task whose labels are rows of a table, with their means and summaries.
LISTED = """
[[aggregate]]
table = "returns labels"
reference = "customer_id"
columns = "returned"
windows = ["ever"]

[[summary]]
table = "returns labels"
columns = "returned"
period = "day"

[[task]]
name = "returns"
[task.derived]
anchor = "customers"
source = "asked"
key = "customer_id"
time = "at"
target = "returned"
type = "boolean"
horizon = "10 minutes"
"""

CITIES = ["Oslo", "Lima", "Kyoto"]


def customers(count: int = 40) -> dict[str, list]:
    """Returns the columns of the table of customers."""
    rows = range(count)
    return {
        "customer_id": [100 + row for row in rows],
        "name": [f"customer {row % 7}" for row in rows],
        "city": [CITIES[row % 3] if row % 11 else None for row in rows],
        "member": [row % 2 == 0 for row in rows],
        "note": [f"note {row % 5}" for row in rows],
    }


def orders(count: int = 20_000, customer_count: int = 40) -> dict[str, list]:
    """Returns the columns of the table of orders."""
    rows = range(count)
    start = datetime.datetime(2023, 1, 1)
    return {
        "order_id": list(rows),
        "customer_id": [100 + row * 7 % customer_count for row in rows],
        "price": [row % 1000 / 8 if row % 13 else None for row in rows],
        "placed_at": [start + datetime.timedelta(minutes=row) for row in rows],
    }


def asked(count: int = 300) -> dict[str, list]:
    """Returns the columns of the seeds of `LISTED`."""
    rows = range(count)
    start = datetime.datetime(2023, 1, 1)
    return {
        "customer_id": [100 + row * 7 % 40 for row in rows],
        "at": [start + datetime.timedelta(hours=row) for row in rows],
        "returned": [row % 3 == 0 for row in rows],
    }


def shop() -> dict[str, dict[str, list]]:
    """Returns the columns of all tables."""
    return {"customers": customers(), "orders": orders()}


def write_csv(folder: Path, tables: dict[str, dict[str, list]]) -> Path:
    """Writes each table as a CSV file."""
    folder.mkdir(exist_ok=True)
    for name, columns in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return folder
