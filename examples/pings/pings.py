"""Writes a made log of pings as CSV: probes that measure the way to a few hosts.

    python examples/pings/pings.py pings.csv [--probes 400] [--seed 1]

Each probe has an address, 4 in 10 an IPv6 one, a distance to each host, and a daily rhythm; one
measurement in 25 fails. `events.toml` beside this program prepares the file.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

HOSTS = 50
MEAN = 250
START = datetime(2025, 7, 1, tzinfo=UTC)


def address(number: int, is_v6: bool) -> str:
    """Returns one of the addresses that are kept for documentation or tests."""
    high, low = divmod(number, 256)
    return f"2001:db8::{high:x}:{low:x}" if is_v6 else f"198.{18 + high // 256}.{high % 256}.{low}"


def lines(probes: int, seed: int) -> list[str]:
    """Returns the rows of the log, in no order."""
    random = np.random.default_rng(seed)
    rows = []
    for probe in range(probes):
        is_v6 = random.random() < 0.4
        distance = random.lognormal(3.5, 0.8, HOSTS)
        busy = random.uniform(0, 0.6)
        for minute in np.cumsum(random.exponential(4, 1 + random.poisson(MEAN))):
            at = START + timedelta(minutes=float(minute))
            host = int(random.zipf(1.5)) % HOSTS
            load = 1 + busy * (1 + np.sin(at.hour / 24 * 2 * np.pi)) * random.random()
            rtt = -1.0 if random.random() < 0.04 else distance[host] * load
            ends = f"{address(probe, is_v6)},{address(60_000 + host, is_v6)}"
            rows.append(
                f"{at.isoformat(timespec='milliseconds')},{ends},{6 if is_v6 else 4},{rtt:.3f}"
            )
    random.shuffle(rows)
    return rows


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="the CSV file to write")
    parser.add_argument("--probes", type=int, default=400, help="how many probes (default: 400)")
    parser.add_argument("--seed", type=int, default=1, help="the random seed (default: 1)")
    args = parser.parse_args()
    rows = lines(args.probes, args.seed)
    args.out.write_text("event_time,src_addr,dst_addr,ip_version,rtt\n" + "\n".join(rows) + "\n")
    print(f"{args.out}: {len(rows):,} measurements of {args.probes} probes")


if __name__ == "__main__":
    main()
