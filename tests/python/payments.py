"""A made log of payments, for the tests of event stores with fields."""

from __future__ import annotations

import numpy as np

import pings

SCHEMA = """
database = "payments"

[events]
source = "payments"
codec = "fields-v1"
entity = "card"
time = { column = "time", unit = "us" }
split = { train = 0.6, val = 0.1, test = 0.3 }

[events.fields]
merchant = { type = "category", max_tokens = 5 }
channel = "category"
amount = "number"
note = { type = "bytes", max_bytes = 9 }
due = { type = "time", unit = "us" }
"""


def payments(cards=40, mean=30, seed=0):
    """Rows of (card, time, merchant, channel, amount, note, due)."""
    random = np.random.default_rng(seed)
    rows = []
    for card in range(cards):
        time = 1_751_000_000_000_000 + int(random.integers(10**11))
        for _ in range(int(random.integers(1, 2 * mean))):
            time += int(random.integers(3_000_000_000))
            merchant = "" if random.random() < 0.1 else f"shop {int(random.pareto(1))}"
            channel = ("web", "app", "shop")[random.integers(3)]
            amount = "" if random.random() < 0.1 else round(float(random.normal(20, 50)), 3)
            note = ("", "thanks", "Gruß an alle")[random.integers(3)]
            days = int(random.integers(-1, 9))
            due = "" if random.random() < 0.3 else time + days * 86_400_000_000
            rows.append((f"card-{card}", time, merchant, channel, amount, note, due))
    return rows


def write_csv(folder, rows):
    """Writes rows as a CSV file; returns its path."""
    header = "card,time,merchant,channel,amount,note,due"
    return pings.write_csv(folder, rows, "payments.csv", header)
