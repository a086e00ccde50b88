"""A run from its first step, or from where it stood, to its last."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import math
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import jax

import headwater
from confluence import config, report, sinks
from confluence.assembly import Assembly, assembled
from confluence.checkpoint import CheckpointError, Checkpoints
from confluence.feed import Fed, Feed
from confluence.optimizer import rate
from confluence.parallel import Processes
from confluence.step import Told, compute_type

# So many steps in a row whose gradient is not finite end a run: it will not come back.
_SKIPPED_IN_A_ROW = 100


class Interrupted(Exception):
    """Somebody asked the run to end; its checkpoint is written."""


class TrainingError(RuntimeError):
    """The run cannot go on."""


def train(
    settings: config.Config,
    out: Path,
    processes: Processes,
    *,
    resume: bool = False,
    profile: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Trains to the last step; returns what `results.json` in the run's folder says.

    The steps from the first to the last of `profile` are traced into the folder's `profile`.

    Raises:
        ConfigError, CheckpointError, JoinError, TrainingError: The message says what to do.
        Interrupted: SIGINT or SIGTERM came, and the run can be taken up again.
    """
    _check_folder(out, resume)
    if processes.count > 1:
        processes.join(settings.run.timeout_seconds, _told(settings, out, resume), _unlike)
    with (
        _room_in(out),  # for what is met in closing
        _signals() as asked,
        ExitStack() as open_things,
        # Within, since closing may wait for processes that wait for this one.
        processes.ending_at_once(Interrupted),
        _room_in(out),
    ):
        if processes.rank == 0:
            open_things.enter_context(_claimed(out))
        parts = open_things.enter_context(assembled(_resolved(settings), processes))
        return _Trainer(parts, out, processes, resume, asked, open_things).run(profile)


def _told(settings: config.Config, out: Path, resume: bool) -> dict[str, Any]:
    """What the processes of a run must have alike."""
    steps = [int(path.name) for path in out.glob("checkpoints/*") if path.name.isdigit()]
    return {
        "config": settings.to_dict(),
        "stores": [headwater.Store(path).root for path in settings.data.stores],
        "step": max(steps, default=0) if resume else 0,
    }


def _unlike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    found = config.unlike(ours["config"], theirs["config"])
    if ours["stores"] != theirs["stores"]:
        found.append(f"its data are {theirs['stores']} and not {ours['stores']}")
    if ours["step"] != theirs["step"]:
        found.append(
            f"it would go on from step {theirs['step']} and not {ours['step']} (do all see "
            "one folder as --out?)"
        )
    return found


class _Trainer:
    def __init__(
        self,
        parts: Assembly,
        out: Path,
        processes: Processes,
        resume: bool,
        asked: _Asked,
        open_things: ExitStack,
    ) -> None:
        self._parts, self._out, self._asked = parts, out, asked
        self._is_alone = processes.count == 1
        self._settings, self._program = parts.settings, parts.program
        self._leads = processes.rank == 0
        self._checkpoints = Checkpoints(out.absolute() / "checkpoints", self._settings.run.keep)
        open_things.callback(self._checkpoints.close)
        self._state = self._program.initial()
        self._begun_at = 0
        if resume:
            self._take_up()
        own = sinks.opened(self._settings, out, self._begun_at) if self._leads else []
        self._log = _Log(out / "metrics.jsonl", self._begun_at, self._leads, own)
        open_things.callback(self._log.close)
        if self._leads:
            _write_settings(out, self._settings, processes, self._begun_at)

    def _take_up(self) -> None:
        step = self._checkpoints.latest
        if step is None:
            print("confluence: there is no checkpoint yet; beginning afresh", file=sys.stderr)
            return
        found = self._checkpoints.restore(step, self._state, self._settings, self._parts.roots)
        self._parts.sampler.resume(found.cursor)
        self._state, self._begun_at = found.state, step
        if self._leads:
            print(f"confluence: going on after step {step}", file=sys.stderr)

    def run(self, profile: tuple[int, int] | None) -> dict[str, Any]:
        last = self._settings.optimizer.steps
        if self._begun_at == 0:
            self._evaluate(0, b"")
        if self._begun_at < last:
            self._steps(last, profile)
        self._checkpoints.wait()
        results = self._results()
        if self._leads:
            _write_json(self._out / "results.json", results)
            self._log.flush()
            report.write(self._out, results, self._draw_contexts())
        return results

    def _draw_contexts(self) -> dict[str, str]:
        """Draws the first context of each task, as the model saw it; returns the pages' names."""
        names = {task.name: f"context-{n}.html" for n, task in enumerate(self._parts.tasks)}
        for task, name in names.items():
            self._parts.sampler.draw(task, 0, self._out / name)
        return names

    def _steps(self, last: int, profile: tuple[int, int] | None) -> None:
        run = self._settings.run
        feed = Feed(self._parts.sampler, self._parts.form, run.ahead_on_device)
        watch = _Watch(self._parts, self._log, feed, int(self._state.skipped))
        tracing = _Tracing(self._out / "profile", profile)
        try:
            last_finite = self._begun_at
            for step in range(self._begun_at + 1, last + 1):
                tracing.before(step)
                fed = feed.take()
                flag = self._parts.layout.put_flag(self._asked.to_end)
                self._state, told = self._program.step(self._state, fed.batch, flag)
                told = jax.device_get(told)
                tracing.after(step)
                watch.saw(step, fed, told)
                last_finite = _last_finite(step, told, last_finite)
                is_last = step == last
                if is_last or (run.evaluate_every and step % run.evaluate_every == 0):
                    with watch.paused():
                        self._evaluate(step, fed.cursor)
                elif step % run.checkpoint_every == 0 or told.asked_to_end:
                    self._save(step, fed.cursor)
                if told.asked_to_end and not is_last:
                    self._checkpoints.wait()
                    raise Interrupted(
                        f"ended after step {step} of {last}, which is kept in {self._out}; go on "
                        "with --resume"
                    )
        finally:
            feed.close()
            tracing.stop()

    def _save(self, step: int, cursor: bytes, loss: float | None = None) -> None:
        # What the checkpoint says was done, the log must say, too.
        self._log.flush()
        self._checkpoints.save(step, self._state, cursor, self._settings, self._parts.roots, loss)

    def _evaluate(self, step: int, cursor: bytes) -> None:
        """Scores the validation split of all tasks, and keeps the state under their mean loss."""
        losses = []
        for task in self._parts.tasks:
            limit = self._settings.run.evaluate_batches
            scored = self._parts.score(
                self._state.learnt, "val", task, limit, between=self._end_between
            )
            if scored.seeds:
                losses.append(scored.loss)
                self._log.write(
                    {"step": step, "split": "val", "task": task.name, **scored.record()}
                )
        if step:
            self._save(step, cursor, _mean_of_finite(losses))

    def _end_between(self) -> None:
        """Ends a run of one process in an evaluation; several agree on it in their next step."""
        if self._asked.to_end and self._is_alone:
            self._checkpoints.wait()
            step = self._checkpoints.latest
            kept = f"{self._out} has step {step}" if step else "no step is kept yet"
            raise Interrupted(f"ended in an evaluation; {kept}; go on with --resume")

    def _results(self) -> dict[str, Any]:
        """Scores val and test with the best parameters by validation, beside the baselines."""
        best = self._checkpoints.best
        assert best is not None, "the last step is always kept"
        kept = self._checkpoints.restore(best, self._state, self._settings, self._parts.roots)
        tasks = self._parts.results(kept.state.learnt, ("val", "test"), self._end_between)
        return {"step": best, "tasks": tasks}


def _mean_of_finite(losses: list[float]) -> float | None:
    """The mean, by which the best is chosen; None where there is none to compare with others."""
    mean = sum(losses) / len(losses) if losses else math.nan
    return mean if math.isfinite(mean) else None


def _last_finite(step: int, told: Told, before: int) -> int:
    """Returns the last step with a finite gradient; ends a run that has none any more."""
    if math.isfinite(float(told.gradient_norm)) and math.isfinite(float(told.loss)):
        return step
    if step - before >= _SKIPPED_IN_A_ROW:
        raise TrainingError(
            f"the gradients of the last {_SKIPPED_IN_A_ROW} steps, up to {step}, were not finite; "
            "begin again with lower rates (optimizer.muon_rate, optimizer.adam_rate)"
        )
    return before


class _Watch:
    """What is written down and shown of the steps."""

    def __init__(self, parts: Assembly, log: _Log, feed: Feed, skipped: int) -> None:
        # Steps before this one that changed nothing, the rates neither.
        self._skipped = skipped
        self._settings, self._tasks, self._program = parts.settings, parts.tasks, parts.program
        self._log, self._feed = log, feed
        optimizer = self._settings.optimizer
        self._rates = {
            "muon_rate": rate(optimizer, optimizer.muon_rate),
            "adam_rate": rate(optimizer, optimizer.adam_rate),
        }
        self._losses: dict[str, list[float]] = defaultdict(list)
        self._begin_window()

    def saw(self, step: int, fed: Fed, told: Told) -> None:
        name = self._tasks[fed.task].name
        self._log.write(
            {
                "step": step,
                "task": name,
                "loss": float(told.loss),
                "gradient_norm": float(told.gradient_norm),
                "skipped": int(told.skipped),
                **{n: float(of(step - 1 - self._skipped)) for n, of in self._rates.items()},
            }
        )
        self._skipped = int(told.skipped)
        self._losses[name].append(float(told.loss))
        self._steps += 1
        self._cells += fed.cells
        self._places += fed.places
        self._travel += fed.travel_seconds
        if step % self._settings.run.log_every == 0:
            self._tell(step)
            self._begin_window()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time that is not of the steps."""
        begun = time.perf_counter()
        yield
        self._begun += time.perf_counter() - begun

    def _begin_window(self) -> None:
        self._begun = time.perf_counter()
        self._waited = self._feed.waited_seconds
        self._steps = self._cells = self._places = 0
        self._travel = 0.0
        self._losses.clear()

    def _tell(self, step: int) -> None:
        seconds = max(time.perf_counter() - self._begun, 1e-9)
        waited = self._feed.waited_seconds - self._waited
        speed: dict[str, Any] = {
            "step_seconds": seconds / self._steps,
            "cells_per_second": self._cells / seconds,
            "padding": 1 - self._cells / self._places,
            "data_wait": waited / seconds,
            "travel_seconds": self._travel / self._steps,
            "compiled_steps": self._program.compiled_steps,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "device_peak_bytes": _device_peak(),
        }
        self._log.write({"step": step, "speed": speed})
        losses = "  ".join(
            f"{name.rpartition('/')[2]} {sum(of) / len(of):.4f}"
            for name, of in sorted(self._losses.items())
        )
        left = (self._settings.optimizer.steps - step) * speed["step_seconds"]
        self._log.show(
            f"step {step}/{self._settings.optimizer.steps}  {losses}  "
            f"{speed['step_seconds']:.3f} s/step  waiting for data {speed['data_wait']:.0%}  "
            f"{left / 60:.0f} min left"
        )


class _Log:
    """The run's metrics, a line of JSON each; on a terminal, a line that is written over."""

    def __init__(self, path: Path, step: int, leads: bool, others: list[sinks.Sink]) -> None:
        self._file: TextIO | None = None
        self._others = others
        self._shows = leads and sys.stderr.isatty()
        if leads:
            _cut_after(path, step)
            self._file = path.open("a")

    def write(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(_strict(record)) + "\n")
        for sink in self._others:
            sink.write(record["step"], sinks.numbers(record))

    def show(self, line: str) -> None:
        self.flush()
        if self._shows:
            # A terminal that nobody gave a size to has none.
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            sys.stderr.write(f"\r{line[: width - 1]:<{width - 1}}")
            sys.stderr.flush()

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        for sink in self._others:
            sink.flush()

    def close(self) -> None:
        if self._shows:
            sys.stderr.write("\n")
        if self._file is not None:
            self._file.close()
        for sink in self._others:
            sink.close()


class _Asked:
    """Whether a signal came."""

    to_end = False


@contextmanager
def _signals() -> Iterator[_Asked]:
    """Turns SIGINT and SIGTERM into a flag; the second ends the process as ever."""
    asked = _Asked()

    def note(number: int, _: Any) -> None:
        asked.to_end = True
        signal.signal(number, before[number])

    before = {
        int(number): signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Tracing:
    """A trace of some steps, those of them that come."""

    def __init__(self, folder: Path, span: tuple[int, int] | None) -> None:
        self._folder, self._span, self._is_on = folder, span, False

    def before(self, step: int) -> None:
        if self._span and not self._is_on and self._span[0] <= step <= self._span[1]:
            jax.profiler.start_trace(str(self._folder))
            self._is_on = True

    def after(self, step: int) -> None:
        if self._span and step == self._span[1]:
            self.stop()

    def stop(self) -> None:
        if self._is_on:
            jax.profiler.stop_trace()
            self._is_on = False


def _resolved(settings: config.Config) -> config.Config:
    """What is written down means the same elsewhere: on another device, from another folder."""
    return dataclasses.replace(
        settings,
        model=dataclasses.replace(settings.model, compute=compute_type(settings.model.compute)),
        data=dataclasses.replace(
            settings.data, stores=tuple(os.path.abspath(path) for path in settings.data.stores)
        ),
    )


@contextmanager
def _claimed(out: Path) -> Iterator[None]:
    """Keeps other processes from training in the folder; ends with the process, however it does."""
    with (out / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise config.ConfigError(
                f"another process trains in {out}; wait for its end, or name another folder"
            ) from None
        yield


def _check_folder(out: Path, resume: bool) -> None:
    """Makes the run's folder, and does not write over another run."""
    if not resume and (out / "config.toml").exists():
        raise config.ConfigError(
            f"{out} holds a run already; go on with --resume, or name another folder"
        )
    if resume and not (out / "config.toml").exists():
        raise config.ConfigError(f"{out} holds no run to go on with; begin one without --resume")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise config.ConfigError(f"{out} cannot be made: {error.strerror}") from None


@contextmanager
def _room_in(out: Path) -> Iterator[None]:
    """Whatever file of a run meets the full disk, the run is told the same."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CheckpointError(
            f"{error.filename or out} could not be written: {error.strerror}; make room, and go on "
            "with --resume"
        ) from None


def _write_settings(out: Path, settings: config.Config, processes: Processes, step: int) -> None:
    """Writes what the run is, and under what it goes on from `step`.

    The same bits come of the same parameters only where all of that is the same; so what changed is
    said, and kept.
    """
    _write_text(out / "config.toml", settings.to_toml())
    names = ("headwater", "jax", "jaxlib", "numpy", "optax", "orbax-checkpoint")
    now = {
        "python": sys.version.split()[0],
        **{name: version(name) for name in names},
        "device": jax.devices()[0].device_kind,
        "cores": len(os.sched_getaffinity(0)),
        "processes": processes.count,
    }
    path = out / "versions.json"
    # A list, each from a step on; of a run that begins anew, this alone.
    before = json.loads(path.read_text()) if step and path.exists() else []
    was = before[-1] if before else {}
    changed = [
        f"{name} is {value!r}, and was {was[name]!r}"
        for name, value in now.items()
        if name in was and was[name] != value
    ]
    if changed:
        print(
            f"confluence: {'; '.join(changed)}: from step {step} on the last digits may be others",
            file=sys.stderr,
        )
    if changed or not before:
        _write_json(path, [*before, {"after_step": step, **now}])


def _write_json(path: Path, content: Any) -> None:
    _write_text(path, json.dumps(_strict(content), indent=1) + "\n")


def _strict(content: Any) -> Any:
    """The content as every reader of JSON takes it: what is no finite number is null."""
    if isinstance(content, Mapping):
        return {key: _strict(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_strict(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def _write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    spare = path.with_suffix(".tmp")
    with spare.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    spare.replace(path)


def _cut_after(path: Path, step: int) -> None:
    """Takes away what a killed run wrote after its checkpoint."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            break
        if record["step"] <= step:
            kept.append(line + "\n")
    # Where nothing was kept, the first evaluation is made again.
    _write_text(path, "".join(kept) if step else "")


def _device_peak() -> int | None:
    stats = jax.local_devices()[0].memory_stats()
    return stats.get("peak_bytes_in_use") if stats else None
