"""Prepares the orders of the demo shop as an event store: each order an event of its customer.

    headwater demo-data shop
    python examples/orders/orders.py shop orders.db

An order is the sum of its items, which SQL adds up; `events.toml` beside this program says what
becomes of each column.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import duckdb

import headwater

ORDERS = """
SELECT
    o.customer_id,
    o.placed_at,
    o.channel,
    o.gift,
    carrier.name AS carrier,
    arg_min(department.name, i.line) AS department,
    arg_min(product.name, i.line) AS product,
    count(*) AS items,
    sum(product.price * i.quantity * (1 - coalesce(i.discount_percent, 0) / 100)) AS total
FROM '{shop}/orders.csv' o
JOIN '{shop}/order_items.csv' i ON i.order_id = o.id
JOIN '{shop}/products.csv' product ON product.id = i.product_id
JOIN '{shop}/categories.csv' category ON category.id = product.category_id
JOIN '{shop}/categories.csv' department ON department.id = category.parent_id
JOIN '{shop}/carriers.csv' carrier ON carrier.id = o.carrier_id
GROUP BY ALL
"""


def main() -> None:
    """Prepares the store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shop", type=Path, help="the folder that headwater demo-data wrote")
    parser.add_argument("store", type=Path, help="the store to make")
    args = parser.parse_args()
    orders = duckdb.sql(ORDERS.format(shop=args.shop)).to_arrow_table()
    schema = Path(__file__).parent / "events.toml"
    report = headwater.prepare({"orders": orders}, schema, args.store)
    print(
        f"{args.store}: {report['event_count']:,} orders of {report['entity_count']:,} customers, "
        f"root {report['root']}"
    )


if __name__ == "__main__":
    main()
