"""Measures what it takes to bring the tables of stores, with all texts, to the device.

    python benches/tables.py STORE ... [--record FILE]

Each round starts a process that does it once, as a run of `confluence` with
`data.texts = "global"` does, on a CPU. Figures are the CPU seconds, and how much memory the process
takes that is not a mapped file, in megabytes and divided by the size of the tables on the device.
All files are read before, so that no process waits for the disk. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import prepare


def anonymous_bytes() -> int:
    """Returns the memory of this process that is not a mapped file."""
    found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found, "expected a line RssAnon in /proc/self/status, which Linux has"
    return int(found[1]) * 1024


def turn(paths: list[str]) -> dict[str, float]:
    """Brings the tables to the device in this process."""
    import jax
    import numpy as np

    import headwater
    from confluence import batch
    from confluence.parallel import Layout

    layout = Layout()
    jax.block_until_ready(layout.copy_to_all([np.zeros(1)]))
    before, started = anonymous_bytes(), time.process_time()
    stores = [headwater.Store(path) for path in paths]
    tables = layout.copy_to_all(batch.vocabulary_and_tables(stores, "global")[1])
    jax.block_until_ready(tables)
    cpu, grown = time.process_time() - started, anonymous_bytes() - before
    on_device = sum(array.nbytes for array in jax.tree.leaves(tables))
    return {
        "cpu_s": round(cpu, 3),
        "device_mb": round(on_device / 1e6, 1),
        "anonymous_mb": round(grown / 1e6, 1),
        "anonymous_to_device": round(grown / on_device, 3),
    }


def main() -> None:
    """Measures, prints and records."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path, help="write the figures here")
    parser.add_argument("--turn", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(options.store)))
        return
    record = prepare.heading("tables of stores with all texts, brought to the device of a CPU")
    for path in options.store:
        for file in Path(path).rglob("*.bin"):
            file.read_bytes()
    command = [sys.executable, __file__, "--turn", *options.store]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    record["turns"] = [
        json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
        for _ in range(options.rounds)
    ]
    prepare.publish(record, options.record)


if __name__ == "__main__":
    main()
