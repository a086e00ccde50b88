"""Measures the cost of resuming: headwater, grain and torchdata's StatefulDataLoader.

Each resumes after few and after many batches. headwater samples a store; the others shuffle a range
of numbers in batches of 32, and load no data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headwater

BATCH_SIZE = 32
NEAR, FAR = 10, 30_000
NUMBERS = 10_000_000


def cpu_ms(work: Callable[[], object]) -> float:
    """Returns the CPU time of a call, in milliseconds."""
    started = time.process_time()
    work()
    return round((time.process_time() - started) * 1e3, 3)


def sampler_times(store: Path) -> dict[str, Any]:
    """Measures `resume` of an open sampler, without the next batch, whose cost does not change."""
    sampler = headwater.Sampler(store, num_prefetch=0, num_threads=1, tasks=["orders.o_totalprice"])
    taken, result = 0, {}
    for name, position in (("near", NEAR), ("far", FAR)):
        while taken < position:
            sampler.next_train_batch()
            taken += 1
        cursor = sampler.cursor()
        result[f"{name}_ms"] = cpu_ms(lambda cursor=cursor: sampler.resume(cursor))
        result["cursor_bytes"] = len(cursor)
    return result


def grain_times() -> dict[str, Any]:
    """Measures `set_state` of a grain iterator, with the next batch."""
    try:
        from grain import MapDataset
    except ImportError:
        return {"skipped": "grain is not installed"}
    dataset = MapDataset.range(NUMBERS).shuffle(seed=42).batch(BATCH_SIZE)
    result = {}
    for name, position in (("near", NEAR), ("far", FAR)):
        taken = iter(dataset.to_iter_dataset())
        next(taken)
        state = taken.get_state()
        assert "next_index" in state, state
        state["next_index"] = position
        fresh = iter(dataset.to_iter_dataset())

        def resume(fresh: Any = fresh, state: Any = state) -> None:
            fresh.set_state(state)
            next(fresh)

        result[f"{name}_with_a_batch_ms"] = cpu_ms(resume)
    return result


def torchdata_times() -> dict[str, Any]:
    """Measures `load_state_dict` of a StatefulDataLoader without workers, with the next batch."""
    try:
        import torch.utils.data
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ImportError:
        return {"skipped": "torchdata is not installed"}

    class Numbers(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return NUMBERS

        def __getitem__(self, index: int) -> int:
            return index

    def loader() -> Any:
        generator = torch.Generator().manual_seed(42)
        return StatefulDataLoader(
            Numbers(), batch_size=BATCH_SIZE, shuffle=True, generator=generator
        )

    result = {}
    for name, position in (("near", NEAR), ("far", FAR)):
        taken = loader()
        batches = iter(taken)
        for _ in range(position):
            next(batches)
        state, fresh = taken.state_dict(), loader()

        def resume(fresh: Any = fresh, state: Any = state) -> None:
            fresh.load_state_dict(state)
            next(iter(fresh))

        result[f"{name}_with_a_batch_ms"] = cpu_ms(resume)
    return result


def measure(store: Path) -> dict[str, Any]:
    """Measures all three."""
    return {
        "batches_before": {"near": NEAR, "far": FAR},
        "headwater": sampler_times(store),
        "grain": grain_times(),
        "torchdata_stateful_dataloader": torchdata_times(),
    }
