"""What a run reports while it trains: its log, the steps on a terminal, a trace of some steps."""

from __future__ import annotations

import json
import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import jax

from confluence import masked, sinks
from confluence.assembly import Assembly
from confluence.feed import FedBatch, Feed
from confluence.optimizer import Length, learning_rate
from confluence.run_folder import strict_json, truncate_log
from confluence.step import StepMetrics


class MetricsLog:
    """The run's metrics, one line of JSON each."""

    def __init__(
        self, path: Path, step: int, *, is_leader: bool, other_sinks: list[sinks.Sink]
    ) -> None:
        """Continues the log at `path` after `step`; only the leader, rank 0, writes one."""
        self._file: TextIO | None = None
        self._sinks = other_sinks
        if is_leader:
            truncate_log(path, step)
            self._file = path.open("a")

    def write(self, record: dict[str, Any]) -> None:
        """Appends a record, and sends its numbers to the other sinks."""
        if self._file is not None:
            self._file.write(json.dumps(strict_json(record)) + "\n")
        for sink in self._sinks:
            sink.write(record["step"], sinks.numbers(record))

    def flush(self) -> None:
        """Writes all records through to the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        for sink in self._sinks:
            sink.flush()

    def close(self) -> None:
        """Closes the log and the other sinks."""
        if self._file is not None:
            self._file.close()
        for sink in self._sinks:
            sink.close()


class StepRecorder:
    """Records every step in the log, and the speed every `run.log_every` steps."""

    def __init__(self, parts: Assembly, log: MetricsLog, feed: Feed, skipped: int) -> None:
        # Skipped steps changed nothing, and did not advance the rates either.
        self._skipped = skipped
        self._settings, self._streams, self._program = parts.settings, parts.streams, parts.program
        self._log, self._feed, self._status = log, feed, parts.status
        optimizer = self._settings.optimizer
        length = Length.of(optimizer)
        self._rates = {
            "muon_rate": learning_rate(optimizer, optimizer.muon_rate, length),
            "adam_rate": learning_rate(optimizer, optimizer.adam_rate, length),
        }
        self._losses: dict[str, list[float]] = defaultdict(list)
        # For the terminal: the losses and speed of the last window, when the last step ended, and
        # how long the last ones took.
        self._shown = ""
        self._step_end: float | None = None
        self._step_seconds: float | None = None
        self._start_window()

    def record(self, step: int, fed: FedBatch, metrics: StepMetrics) -> None:
        """Records a step and the batch that it trained on."""
        name = self._streams[fed.task]
        self._log.write(
            {
                "step": step,
                "task": name,
                "loss": float(metrics.loss),
                "gradient_norm": float(metrics.gradient_norm),
                "skipped": int(metrics.skipped),
                **({} if metrics.masked is None else {"masked": masked.by_name(*metrics.masked)}),
                **{
                    name: float(rate(step - 1 - self._skipped))
                    for name, rate in self._rates.items()
                },
            }
        )
        self._skipped = int(metrics.skipped)
        self._losses[name].append(float(metrics.loss))
        self._steps += 1
        self._cells += fed.cells
        self._capacity += fed.capacity
        self._transfer += fed.transfer_seconds
        if step % self._settings.run.log_every == 0:
            self._record_speed(step)
            self._start_window()
        self._show(step)

    def _show(self, step: int) -> None:
        now, steps = time.perf_counter(), self._settings.optimizer.steps
        # The first step compiles, and tells nothing of the others.
        if self._step_end is not None:
            seconds = now - self._step_end
            before = seconds if self._step_seconds is None else self._step_seconds
            self._step_seconds = 0.9 * before + 0.1 * seconds
        self._step_end = now
        line = f"step {step}/{steps}{self._shown}"
        if self._step_seconds is not None:
            line += f"  {(steps - step) * self._step_seconds / 60:.0f} min left"
        self._status.show_sometimes(line, step / steps)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time of the `with` block from the speed."""
        start, cpu_start = time.perf_counter(), time.process_time()
        yield
        self._window_start += time.perf_counter() - start
        self._window_cpu_start += time.process_time() - cpu_start
        self._step_end = time.perf_counter()

    def _start_window(self) -> None:
        self._window_start = time.perf_counter()
        self._window_cpu_start = time.process_time()
        self._waited = self._feed.waited_seconds
        self._steps = self._cells = self._capacity = 0
        self._transfer = 0.0
        self._losses.clear()

    def _record_speed(self, step: int) -> None:
        seconds = max(time.perf_counter() - self._window_start, 1e-9)
        cpu_seconds = time.process_time() - self._window_cpu_start
        waited = self._feed.waited_seconds - self._waited
        speed: dict[str, Any] = {
            "step_seconds": seconds / self._steps,
            # Of all processes, which do the same work.
            "step_cpu_seconds": cpu_seconds / self._steps * jax.process_count(),
            "cells_per_second": self._cells / seconds,
            "padding": 1 - self._cells / self._capacity,
            "data_wait": waited / seconds,
            "transfer_seconds": self._transfer / self._steps,
            "compiled_steps": self._program.compiled_steps,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "device_peak_bytes": _device_peak(),
        }
        self._log.write({"step": step, "speed": speed})
        losses = "  ".join(
            f"{name.rpartition('/')[2]} {sum(of_task) / len(of_task):.4f}"
            for name, of_task in sorted(self._losses.items())
        )
        self._shown = (
            f"  {losses}  {speed['step_seconds']:.3f} s/step  waiting for data "
            f"{speed['data_wait']:.0%}"
        )
        self._log.flush()


class ProfilerTrace:
    """A trace of the steps of `span`, of those that are trained."""

    def __init__(self, folder: Path, span: tuple[int, int] | None) -> None:
        self._folder, self._span, self._is_running = folder, span, False

    def before(self, step: int) -> None:
        """Starts the trace if `step` is in the span."""
        if self._span and not self._is_running and self._span[0] <= step <= self._span[1]:
            jax.profiler.start_trace(str(self._folder))
            self._is_running = True

    def after(self, step: int) -> None:
        """Stops the trace after the last step of the span."""
        if self._span and step == self._span[1]:
            self.stop()

    def stop(self) -> None:
        """Stops the trace if it is running."""
        if self._is_running:
            jax.profiler.stop_trace()
            self._is_running = False


def _device_peak() -> int | None:
    stats = jax.local_devices()[0].memory_stats()
    return stats.get("peak_bytes_in_use") if stats else None
