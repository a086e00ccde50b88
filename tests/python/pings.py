"""A made log of pings, for the tests of event stores."""

from __future__ import annotations

import numpy as np

SCHEMA = """
database = "pings"

[events]
source = "pings"
codec = "latency-v1"
entity = "src_addr"
time = { column = "event_time", unit = "us" }
columns = { dst = "dst_addr", rtt = "rtt", family = "ip_version" }
split = { train = 0.6, val = 0.1, test = 0.3 }
"""


def pings(probes=40, mean=30, seed=0):
    """Rows of (src_addr, dst_addr, ip_version, event_time, rtt)."""
    random = np.random.default_rng(seed)
    rows = []
    for probe in range(probes):
        is_v6 = probe % 5 < 2

        def address(number, is_v6=is_v6):
            high, low = divmod(int(number), 256)
            return f"2001:db8::{high:x}:{low:x}" if is_v6 else f"10.7.{high}.{low}"

        time = 1_751_000_000_000_000 + int(random.integers(10**11))
        for _ in range(int(random.integers(1, 2 * mean))):
            time += int(random.integers(300_000_000))
            rtt = -1.0 if random.random() < 0.05 else float(random.exponential(50))
            target = address(1000 + random.integers(50))
            rows.append((address(probe), target, 6 if is_v6 else 4, time, rtt))
    return rows


def write_csv(folder, rows, name="pings.csv", header="src_addr,dst_addr,ip_version,event_time,rtt"):
    """Writes rows as a CSV file; returns its path."""
    lines = [header, *(",".join(str(value) for value in row) for row in rows)]
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path
