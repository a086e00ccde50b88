"""Measures a training step in microbatches beside one as a whole, on one and two processes.

    python benches/elastic.py --record benches/record/NAME.json

Both kinds of step are taken in turn, in the same processes, on synthetic contexts: `tree` has eight
microbatches, `psum` has none. CPU seconds are of all processes together.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import prepare

WIDTHS = (64, 128, 256)
WARM_UP = 2
WAYS = {"tree": 8, "psum": 0}


def main() -> None:
    """Measures and records; with --rank, as one of several processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=8, help="default: 8")
    parser.add_argument("--record", type=Path, help="JSON file to write")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--world", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        measure(args.rank, args.world, args.port, args.steps)
        return
    record = prepare.heading("a training step in microbatches, beside one as a whole")
    record["steps"] = {f"{world} processes": of_processes(world, args.steps) for world in (1, 2)}
    prepare.publish(record, args.record)


def of_processes(world: int, steps: int) -> dict[str, Any]:
    """Returns the medians of a step, by width, of so many processes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    shared = [sys.executable, __file__, "--steps", str(steps), "--world", str(world)]
    ranks = [
        subprocess.Popen(
            [*shared, "--port", str(port), "--rank", str(rank)], stdout=subprocess.PIPE, text=True
        )
        for rank in range(world)
    ]
    outputs = [rank.communicate()[0] for rank in ranks]
    found = [json.loads(output.splitlines()[-1]) for output in outputs]
    return {
        width: {
            **{
                f"{way}_cpu_seconds": round(sum(of[width][way][0] for of in found), 4)
                for way in WAYS
            },
            **{f"{way}_seconds": round(found[0][width][way][1], 4) for way in WAYS},
            "tree_to_psum": round(
                sum(of[width]["tree"][0] for of in found)
                / sum(of[width]["psum"][0] for of in found), 2,
            ),
        }
        for width in found[0]
    }  # fmt: skip


def measure(rank: int, world: int, port: str, steps: int) -> None:
    """Prints the median CPU seconds and seconds of a step in this process, by width and way."""
    import jax
    import numpy as np

    if world > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", world, rank)

    from confluence import config, synthetic
    from confluence.microbatches import Microbatches, split
    from confluence.parallel import Layout
    from confluence.step import Program

    layout = Layout()
    found: dict[str, dict[str, list[float]]] = {}
    for width in WIDTHS:
        actions = {}
        for way, count in WAYS.items():
            settings = config.load(
                "cpu-small",
                [f"model.width={width}", f"model.hidden={3 * width}",
                 f"optimizer.microbatches={count}"],
            )  # fmt: skip
            program = Program(settings, *synthetic.vocabulary_and_tables(), layout)
            whole = synthetic.batch(
                settings.data, synthetic.TARGET_TYPES[0], np.random.default_rng(1)
            )
            if count:
                parts = split(whole, count, layout)
                batch: Any = Microbatches(
                    parts[rank * count // world : (rank + 1) * count // world]
                )
            else:
                batch = layout.to_devices(split(whole, world, layout)[rank])
            actions[way] = stepper(program, batch, layout.flag_to_devices(False))
        taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for number in range(WARM_UP + steps):
            for way, action in actions.items():
                start, cpu_start = time.perf_counter(), time.process_time()
                action()
                if number >= WARM_UP:
                    taken[way].append(
                        (time.process_time() - cpu_start, time.perf_counter() - start)
                    )
        found[f"width {width}"] = {
            way: [statistics.median(of) for of in zip(*times, strict=True)]
            for way, times in taken.items()
        }
    print(json.dumps(found))


def stepper(program: Any, batch: Any, stop: Any) -> Any:
    """Returns a function that takes a step."""
    import jax

    state = program.initial()

    def step() -> None:
        nonlocal state
        state, metrics = program.step(state, batch, stop)
        jax.block_until_ready(metrics)

    return step


if __name__ == "__main__":
    main()
