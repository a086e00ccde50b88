"""Training: a run from its first step, or from its newest checkpoint, to its last step."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax

import headwater
from confluence import (
    batch,
    config,
    epochs,
    masked,
    members,
    parallel,
    report,
    run_folder,
    sinks,
    starting,
)
from confluence.assembly import Assembly, assemble, check_embedders, open_run, open_stores
from confluence.checkpoint import Checkpoints, Writer, steps_in
from confluence.feed import Feed, check_processes
from confluence.parallel import Processes
from confluence.patience import Validation
from confluence.peers import Peers
from confluence.progress import MetricsLog, ProfilerTrace, StepRecorder
from confluence.results import Results
from confluence.rollcall import Meeting, RunIdentity
from confluence.status import StatusLine
from confluence.step import State, StepMetrics, compute_type

# A run ends after this many steps in a row without a finite gradient: it will not recover.
_MAX_SKIPPED_STEPS = 100
_CONTINUE = "continue with --resume (from Python: resume=True)"


class Interrupted(Exception):
    """SIGINT or SIGTERM stopped the run; its checkpoint is written."""


class TrainingError(RuntimeError):
    """The run cannot continue."""


def train(
    settings: config.Config,
    out: Path,
    processes: Processes,
    *,
    resume: bool = False,
    profile: tuple[int, int] | None = None,
) -> Results:
    """Trains to the last step; returns the content of `results.json` in the run's folder.

    The steps from the first to the last of `profile` are traced into the folder's `profile`.

    Raises:
        ConfigError, CheckpointError, JoinError, TrainingError: The message says what to do.
        Interrupted: SIGINT or SIGTERM came; the run can be resumed.
    """
    members.check(out, settings)
    check_processes(settings, processes.count)
    run_folder.check_folder(out, resume=resume)
    StatusLine(is_leader=processes.rank == 0).show("reading the store")
    is_alone = processes.count == 1
    if is_alone:
        # Before the folder is created: a run that is refused leaves none behind.
        settings = _resolved(settings, out, resume, processes)
    with (
        run_folder.created_folder(out, is_alone=is_alone),
        _joined(settings, out, processes, resume) as peers,
        peers.exit_on_error(Interrupted),
    ):
        if not is_alone:
            # After they have joined: JAX must not be used before.
            settings = _resolved(settings, out, resume, processes)
            if settings.optimizer.microbatches:
                parallel.warn_of_unlike_processes()
        return _train(settings, out, processes, peers, resume, profile)


@contextmanager
def _joined(
    settings: config.Config, out: Path, processes: Processes, resume: bool
) -> Iterator[Peers]:
    """Waits for the other processes, and watches them until the run has ended for this one."""
    timeout = settings.run.timeout_seconds
    if processes.count == 1:
        peers = Peers(0, {}, timeout)
    else:
        identity = _run_identity(settings, out, resume)
        meeting = Meeting(os.path.abspath(out), identity, _identity_differences)
        peers = processes.join(timeout, meeting, out)
    try:
        yield peers
    except Interrupted:
        _end_together(peers, processes)
        raise
    except BaseException:
        peers.close(has_ended=False)
        raise
    _end_together(peers, processes)


def _end_together(peers: Peers, processes: Processes) -> None:
    """Waits until the run has ended for all processes, and ends the watch."""
    if processes.count > 1:
        jax.distributed.shutdown()
    peers.close(has_ended=True)


def _train(
    settings: config.Config,
    out: Path,
    processes: Processes,
    peers: Peers,
    resume: bool,
    profile: tuple[int, int] | None,
) -> Results:
    """Trains in a folder that is there, with settings that are resolved."""
    with (
        run_folder.report_full_disk(out),  # for files that are written while closing
        _stop_on_signals() as stop,
        ExitStack() as open_resources,
        # Inside the ExitStack, since closing may wait for processes that wait for this one.
        peers.exit_on_error(Interrupted),
        run_folder.report_full_disk(out),
    ):
        if processes.rank == 0:
            open_resources.enter_context(run_folder.lock_folder(out))
        if settings.run.members == 1:
            return _train_run(settings, out, processes, peers, resume, stop, profile)
        _train_members(settings, out, processes, peers, stop, profile)
        return _average_members(settings, out, processes, peers, stop)


def _train_run(
    settings: config.Config,
    out: Path,
    processes: Processes,
    peers: Peers,
    resume: bool,
    stop: _StopRequest,
    profile: tuple[int, int] | None,
) -> Results:
    """Trains a run without members, with settings that are resolved."""
    with (
        ExitStack() as open_resources,
        peers.exit_on_error(Interrupted),
        run_folder.report_full_disk(out),
    ):
        parts = open_resources.enter_context(assemble(settings, processes))
        trainer = _Trainer(parts, out, processes, peers, resume, stop, open_resources)
        return trainer.run(profile)


def _train_members(
    settings: config.Config,
    out: Path,
    processes: Processes,
    peers: Peers,
    stop: _StopRequest,
    profile: tuple[int, int] | None,
) -> None:
    """Trains the members that have not ended, one after the other."""
    all_members = list(
        zip(members.folders(out, settings), members.settings_of(settings), strict=True)
    )
    left = [(folder, own) for folder, own in all_members if not run_folder.has_ended(folder, own)]
    if processes.rank == 0:
        run_folder.write_text(out / "config.toml", settings.to_toml())
    for folder, own in left:
        folder.mkdir(exist_ok=True)
        if processes.rank == 0:
            print(f"confluence: training {folder}", file=sys.stderr)
        # All processes agree on what is there: no checkpoint is written before all have looked.
        resume = bool(steps_in(folder / "checkpoints"))
        _train_run(own, folder, processes, peers, resume, stop, profile)


def _average_members(
    settings: config.Config, out: Path, processes: Processes, peers: Peers, stop: _StopRequest
) -> Results:
    """Scores the mean of the members' best checkpoints; writes its results and its report."""

    def after_batch() -> None:
        if stop.is_requested and processes.count == 1:
            raise Interrupted(f"stopped while scoring the members of {out}; {_CONTINUE}")

    is_leader = processes.rank == 0
    with ExitStack() as open_resources, peers.exit_on_error(Interrupted):
        parts, trained = open_resources.enter_context(open_run(out, "best", processes=processes))
        tasks = parts.results(
            [of.params for of in trained],
            ("val", "test"),
            after_batch=after_batch,
            with_boosting=settings.run.boosting and is_leader,
        )
        of_masked = parts.masked_results(
            [of.params for of in trained], ("val", "test"), after_batch=after_batch
        )
        folders = members.folders(out, settings) if is_leader else []
        results = Results(
            None,
            tasks,
            report.training_cpu_seconds(folders),
            report.early_stops(folders),
            [of.step for of in trained],
            masked=of_masked,
        )
        if is_leader:
            _write_results(parts, out, folders, results)
    return results


def _write_results(parts: Assembly, out: Path, folders: Sequence[Path], results: Results) -> None:
    """Writes the report, with a context of each task, and last the results: the run has ended."""
    # The first row of a pool may be no seed.
    tasks = [task.name for task in parts.tasks]
    for task, page in report.context_pages(tasks).items():
        parts.sampler.render_context(task, 0, out / page)
    report.write(out, results, tasks, folders)
    run_folder.write_json(out / "results.json", results.to_dict())


def _run_identity(settings: config.Config, out: Path, resume: bool) -> RunIdentity:
    """Returns what must be equal in all processes of a run."""
    folders = members.folders(out, settings)
    steps = [step for folder in folders for step in steps_in(folder / "checkpoints")]
    return {
        "config": settings.to_dict(),
        "stores": [headwater.Store(path).root for path in settings.data.stores],
        "step": max(steps, default=0) if resume else 0,
    }


def _identity_differences(ours: RunIdentity, theirs: RunIdentity) -> list[str]:
    found = config.process_differences(ours["config"], theirs["config"])
    if ours["stores"] != theirs["stores"]:
        found.append(
            f"its stores have the roots {theirs['stores']}, expected {ours['stores']}: all "
            "processes need the same data"
        )
    if ours["step"] != theirs["step"]:
        found.append(
            f"it would resume from step {theirs['step']}, expected step {ours['step']}: all "
            "processes need the same folder as --out"
        )
    return found


class _StopRequest:
    """Whether a signal asked the run to stop."""

    is_requested = False


class _Trainer:
    def __init__(
        self,
        parts: Assembly,
        out: Path,
        processes: Processes,
        peers: Peers,
        resume: bool,
        stop: _StopRequest,
        open_resources: ExitStack,
    ) -> None:
        self._parts, self._out, self._peers, self._stop = parts, out, peers, stop
        self._is_alone = processes.count == 1
        self._settings, self._program = parts.settings, parts.program
        self._is_leader = processes.rank == 0
        folder = out.absolute() / "checkpoints"
        self._checkpoints = Checkpoints(folder)
        self._first_step = 0
        self._validation = Validation()
        restored = self._resume() if resume else None
        # After that, since damaged checkpoints would count among those to keep.
        self._writer = Writer(folder, self._settings.run.keep)
        open_resources.callback(self._writer.close)
        if restored is not None:
            self._state = restored
        elif self._settings.optimizer.start_from:
            embedders = [of.embedder for of in parts.identities]
            self._state = starting.load(self._settings, self._program, embedders)
        else:
            self._state = self._program.initial()
        is_leader = self._is_leader
        other_sinks = sinks.open_sinks(self._settings, out, self._first_step) if is_leader else []
        self._log = MetricsLog(
            out / "metrics.jsonl", self._first_step, is_leader=is_leader, other_sinks=other_sinks
        )
        open_resources.callback(self._log.close)
        if is_leader:
            run_folder.write_settings(out, self._settings, processes, self._first_step)

    def _resume(self) -> State | None:
        """Goes on from the newest checkpoint, and returns its state; None if there is none."""
        found = self._checkpoints.restore_newest(
            self._program.abstract_state(), self._settings, self._parts.identities
        )
        if found is None:
            print("confluence: there is no checkpoint yet; starting at step 0", file=sys.stderr)
            return None
        self._parts.samplers.resume(found.cursor)
        self._first_step, self._validation = found.step, found.validation
        if self._is_leader:
            print(f"confluence: resuming after step {found.step}", file=sys.stderr)
        return found.state

    def run(self, profile: tuple[int, int] | None) -> Results:
        last = self._settings.optimizer.steps
        if self._first_step == 0:
            self._evaluate(0, b"")
        if self._first_step < last and not self._is_out_of_patience:
            self._train_steps(last, profile)
        self._writer.wait()
        self._log.flush()
        with self._peers.allow_late_ranks():
            results = self._results()
            if self._is_leader:
                _write_results(self._parts, self._out, [self._out], results)
        return results

    @property
    def _is_out_of_patience(self) -> bool:
        return self._validation.is_over(self._settings.optimizer.patience)

    def _train_steps(self, last: int, profile: tuple[int, int] | None) -> None:
        run = self._settings.run
        self._parts.status.show("compiling")
        feed = Feed(self._parts.samplers, self._parts.transfer, run.ahead_on_device)
        recorder = StepRecorder(self._parts, self._log, feed, int(self._state.skipped))
        trace = ProfilerTrace(self._out / "profile", profile)
        try:
            last_finite = self._first_step
            for step in range(self._first_step + 1, last + 1):
                trace.before(step)
                fed = feed.next_batch()
                stop = self._parts.layout.flag_to_devices(self._stop.is_requested)
                self._peers.begin_step()
                self._state, metrics = self._program.step(self._state, fed.batch, stop)
                metrics = jax.device_get(metrics)
                trace.after(step)
                recorder.record(step, fed, metrics)
                last_finite = _last_finite_step(step, metrics, last_finite)
                is_last = step == last
                if is_last or (run.evaluate_every and step % run.evaluate_every == 0):
                    with recorder.paused():
                        self._evaluate(step, fed.cursor)
                    is_last = is_last or self._is_out_of_patience
                elif step % run.checkpoint_every == 0 or metrics.stop_requested:
                    self._save(step, fed.cursor)
                if is_last:
                    break
                if metrics.stop_requested:
                    self._writer.wait()
                    raise Interrupted(
                        f"stopped after step {step} of {last}, whose checkpoint is in "
                        f"{self._out}; {_CONTINUE}"
                    )
        finally:
            feed.close()
            trace.stop()

    def _save(self, step: int, cursor: bytes, loss: float | None = None) -> None:
        # The log on the disk must never be behind the checkpoint.
        self._log.flush()
        self._writer.save(
            step,
            self._state,
            cursor,
            self._settings,
            self._parts.identities,
            self._validation,
            loss,
        )

    def _evaluate(self, step: int, cursor: bytes) -> None:
        """Scores the validation split; saves the state with the mean loss of the tasks.

        A run of pools alone has the mean loss of their masked cells in its place.
        """
        models = [self._state.inference_params]
        limits: dict[str, Any] = {
            "batch_limit": self._settings.run.evaluate_batches,
            "after_batch": self._stop_in_evaluation,
        }
        found: dict[str, dict[str, Any]] = {}
        for task in self._parts.tasks:
            (scores,) = self._parts.score(models, "val", task, **limits)
            if scores.seeds:
                found[task.name] = scores.record()
        of_tasks = [record["loss"] for record in found.values()]
        if self._settings.data.mask_share:
            for stream in self._parts.streams:
                scored = self._parts.score_masked(models, "val", stream, **limits)
                if scored["cells"]:
                    found.setdefault(stream, {"loss": scored["loss"]})["masked"] = scored
        losses = of_tasks or [record["loss"] for record in found.values()]
        for stream, record in found.items():
            self._log.write({"step": step, "split": "val", "task": stream, **record})
        if step:
            loss = _mean_of_finite(losses)
            self._validation = self._validation.after(step, loss)
            self._save(step, cursor, loss)

    def _stop_in_evaluation(self) -> None:
        """Stops a run of one process during an evaluation; several agree on it in a step."""
        if self._stop.is_requested and self._is_alone:
            self._writer.wait()
            step = self._checkpoints.latest
            newest = f"the newest checkpoint is of step {step}" if step else "no checkpoint yet"
            raise Interrupted(f"stopped during an evaluation; {newest} in {self._out}; {_CONTINUE}")

    def _results(self) -> Results:
        """Scores val and test with the best parameters by validation, beside the baselines."""
        found = self._checkpoints.restore_chosen(
            "best", self._state, self._settings, self._parts.identities
        )
        assert found is not None, "the last step always has a checkpoint"
        tasks = self._parts.results(
            [found.state.inference_params],
            ("val", "test"),
            after_batch=self._stop_in_evaluation,
            with_boosting=self._settings.run.boosting and self._is_leader,
        )
        of_masked = self._parts.masked_results(
            [found.state.inference_params],
            ("val", "test"),
            after_batch=self._stop_in_evaluation,
        )
        # The log is the leader's.
        folders = [self._out] if self._is_leader else []
        return Results(
            found.step,
            tasks,
            report.training_cpu_seconds(folders),
            self._early_stop(),
            masked=of_masked,
        )

    def _early_stop(self) -> list[str]:
        """Returns a line if training ended before its last step."""
        step = self._checkpoints.latest
        if step == self._settings.optimizer.steps:
            return []
        return [
            f"stopped early after step {step}: no better validation loss since step "
            f"{self._validation.best_step}"
        ]


def _mean_of_finite(losses: list[float]) -> float | None:
    """Returns the mean, by which the best step is chosen; None if it is not finite."""
    mean = sum(losses) / len(losses) if losses else math.nan
    return mean if math.isfinite(mean) else None


def _last_finite_step(step: int, metrics: StepMetrics, before: int) -> int:
    """Returns the last step with a finite gradient.

    Raises:
        TrainingError: The last such step is too long ago.
    """
    if math.isfinite(float(metrics.gradient_norm)) and math.isfinite(float(metrics.loss)):
        return step
    if step - before >= _MAX_SKIPPED_STEPS:
        raise TrainingError(
            f"expected finite gradients, found none in the last {_MAX_SKIPPED_STEPS} steps up to "
            f"step {step}; start again with lower rates (optimizer.muon_rate, optimizer.adam_rate)"
        )
    return before


@contextmanager
def _stop_on_signals() -> Iterator[_StopRequest]:
    """Turns SIGINT and SIGTERM into a stop request; the second signal ends the process.

    Only the main thread can receive signals: in another thread there is nothing to turn.
    """
    stop = _StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(number: int, _: Any) -> None:
        stop.is_requested = True
        signal.signal(number, before[number])

    before = {
        int(number): signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _resolved(
    settings: config.Config, out: Path, resume: bool, processes: Processes
) -> config.Config:
    """Returns settings that mean the same on another device and from another folder."""
    microbatches = config.microbatches(settings)
    is_auto = settings.optimizer.microbatches == "auto"
    if is_auto and resume and (out / "config.toml").exists():
        # That of the run, which may be older than the setting.
        microbatches = config.microbatches(config.load_run(out))
    settings = dataclasses.replace(
        settings,
        optimizer=dataclasses.replace(settings.optimizer, microbatches=microbatches),
        model=dataclasses.replace(settings.model, compute=compute_type(settings.model.compute)),
        data=dataclasses.replace(
            settings.data, stores=tuple(os.path.abspath(path) for path in settings.data.stores)
        ),
    )
    settings, stores = starting.resolve(settings), open_stores(settings)
    if not resume:
        check_embedders(settings, stores)
    if not resume and processes.rank == 0:
        masked.check_cells(settings)
        data = settings.data
        for line in batch.notes_on_texts(data.stores, stores):
            print(f"confluence: {line}", file=sys.stderr)
        for line in masked.advice(data, stores) + masked.advice_of_labels(data, stores):
            print(f"confluence: advice: {line}", file=sys.stderr)
    settings = epochs.resolve(settings, stores, is_new=not resume, is_leader=processes.rank == 0)
    is_first = not (resume or settings.optimizer.start_from)
    if is_first and settings.data.pools and processes.rank == 0:
        print(f"confluence: {starting.requirement(settings.model)}", file=sys.stderr)
    return settings
