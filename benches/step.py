"""Profiles a training step on one core, and holds it against plain products of as many operations.

    python benches/step.py --config cpu-small --record benches/record/NAME.json
    python benches/step.py --config CONFIG --set data.stores=STORE

Without a store it takes synthetic contexts. `floor_cpu_seconds` is the time of the same number of
operations (as XLA counts them) in products of the cells of a batch with a square matrix of the
model's width, in turn with the steps. The profile has the share of each kind of operation in the
time of all, and the slowest operations. A fused operation is of one kind as a whole.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import prepare

WARM_UP = 3
TRACED = 5


def main() -> None:
    """Measures, profiles and records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="cpu-small", help="default: cpu-small")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=20, help="default: 20")
    parser.add_argument("--core", type=int, default=0, help="core number to run on; default: 0")
    parser.add_argument("--record", type=Path, help="JSON file to write")
    args = parser.parse_args()

    # JAX reads the environment when it is first imported, so what imports it comes later.
    from confluence import memory

    memory.restart_with_tunables()
    os.sched_setaffinity(0, {args.core})
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    record = prepare.heading("a training step")

    import jax

    from confluence import config

    # As a whole, to be one compiled program.
    settings = config.load(args.config, [*args.set, "optimizer.microbatches=0"])
    with program_and_batch(settings) as (program, batch, stop):
        state = program.initial()
        compiled = program.compiled_step(state, batch, stop)

        def step() -> None:
            nonlocal state
            state, metrics = program.step(state, batch, stop)
            jax.block_until_ready(metrics)

        product, operations = plain_product(settings)
        seconds = in_turn([step, product], args.steps)
        step_seconds, product_seconds = (statistics.median(of) for of in seconds)
        flops = compiled.cost_analysis()["flops"]
        floor = product_seconds * flops / operations
        record |= {
            "step_cpu_seconds": round(step_seconds, 4),
            "gigaflop": round(flops / 1e9, 2),
            "floor_cpu_seconds": round(floor, 4),
            "step_to_floor": round(step_seconds / floor, 2),
            "profile": profile(step, compiled.as_text()),
        }
    prepare.publish(record, args.record)


@contextmanager
def program_and_batch(settings: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the compiled functions, a batch (of the stores or synthetic), and the flag to stop."""
    from confluence import bench
    from confluence.assembly import assemble
    from confluence.feed import Feed
    from confluence.parallel import Processes

    if not settings.data.stores:
        yield bench.synthetic_program(settings)
        return
    with assemble(settings, Processes()) as parts:
        feed = Feed(parts.samplers, parts.transfer, settings.run.ahead_on_device)
        try:
            yield parts.program, feed.next_batch().batch, parts.layout.flag_to_devices(False)
        finally:
            feed.close()


def plain_product(settings: Any) -> tuple[Callable[[], None], int]:
    """Returns a function that computes products, and the number of their operations."""
    import jax
    import jax.numpy as jnp

    cells = settings.data.batch_size * settings.data.sequence_length
    width, times = settings.model.width, 32
    matrix = jnp.eye(width)

    @jax.jit
    def chain(x: jax.Array) -> jax.Array:
        for _ in range(times):
            x = x @ matrix
        return x

    x = jnp.ones((cells, width))
    return lambda: jax.block_until_ready(chain(x)), 2 * times * cells * width * width


def in_turn(measured: list[Callable[[], None]], times: int) -> list[list[float]]:
    """Returns the CPU seconds of each call, all functions in turn."""
    seconds: list[list[float]] = [[] for _ in measured]
    for number in range(WARM_UP + times):
        for of, function in zip(seconds, measured, strict=True):
            start = time.process_time()
            function()
            if number >= WARM_UP:
                of.append(time.process_time() - start)
    return seconds


def profile(step: Callable[[], None], program: str) -> dict[str, Any]:
    """Returns the share of each kind of operation in a step, and the slowest operations."""
    import jax

    names = dict(re.findall(r'%([\w.\-]+) = .*op_name="([^"]*)"', program))
    shapes = dict(re.findall(r"%([\w.\-]+) = (\w+\[[\d,]*\])", program))
    milliseconds: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(TRACED):
                step()
        (trace,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(trace))
        for plane in data.planes:
            for line in plane.lines:
                for event in line.events:
                    if event.name in shapes:
                        milliseconds[event.name] += event.duration_ns / TRACED / 1e6
    total = sum(milliseconds.values())
    kinds: collections.Counter[str] = collections.Counter()
    for name, spent in milliseconds.items():
        kinds[kind(name, names.get(name, ""))] += spent
    return {
        "share": {name: round(spent / total, 3) for name, spent in kinds.most_common()},
        "slowest": [
            {
                "share": round(spent / total, 4),
                "operation": f"{name} {shapes[name]}",
                "of": names.get(name, ""),
            }
            for name, spent in milliseconds.most_common(15)
        ],
    }


def kind(name: str, source: str) -> str:
    """Returns the kind of an operation, by its name in the program and in the source."""
    last = source.rsplit("/", 1)[-1]
    if name.startswith("dot") or last == "dot_general":
        return "products"
    if "gather" in name or "scatter" in name:
        return "rows by index"
    if "transpose" in name or "copy" in name:
        return "copies"
    return "sums" if last.startswith("reduce") else "elementwise"


if __name__ == "__main__":
    main()
