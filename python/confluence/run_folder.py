"""The folder of a run: its lock, its settings and versions, its log, each file written whole."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from confluence import config, outputs
from confluence.checkpoint import CheckpointError
from confluence.parallel import Processes, device_kind
from confluence.processor import cores
from headwater._headwater import Claim, InvalidArgument, read_file, write_file

# What a run writes beside its configuration.
_WRITTEN = (
    "checkpoints",
    "metrics.jsonl",
    "profile",
    "report.html",
    "results.json",
    "versions.json",
)


def _has_content(path: Path) -> bool:
    """Returns whether there is a file with bytes or a folder with entries.

    A run that is refused at its start may leave empty ones.
    """
    if path.is_dir():
        return any(path.iterdir())
    return path.exists() and path.stat().st_size > 0


def check_folder(out: Path, *, resume: bool) -> None:
    """Checks that a run can start in the folder, or resume.

    Raises:
        ConfigError: The folder holds another run, files that a run would replace, or none
            although `resume` is set.
    """
    if not resume and (out / "config.toml").exists():
        raise config.ConfigError(
            f"{out} already holds a run; continue it with --resume (from Python: resume=True), or "
            "name another folder"
        )
    taken = [] if resume else sorted(name for name in _WRITTEN if _has_content(out / name))
    if taken:
        raise config.ConfigError(
            f"expected a folder without files that a run writes, found {', '.join(taken)} in "
            f"{out}, and no config.toml; name another folder"
        )
    if resume and not (out / "config.toml").exists():
        raise config.ConfigError(
            f"expected the folder of a run, found no config.toml in {out}; start a run without "
            "--resume"
        )


@contextmanager
def created_folder(out: Path, *, is_alone: bool) -> Iterator[None]:
    """Creates the folder of a run; removes it if the run is refused before it has begun.

    A folder that was there before stays, and so does that of several processes.

    Raises:
        ConfigError: It cannot be created.
    """
    is_new = True
    try:
        out.mkdir(parents=True)
    except OSError as error:
        if not out.is_dir():
            raise config.ConfigError(f"cannot create the folder {out}: {error.strerror}") from None
        is_new = False
    try:
        yield
    except (config.ConfigError, CheckpointError):
        if is_new and is_alone and not (out / "config.toml").exists():
            shutil.rmtree(out, ignore_errors=True)
        raise


def has_ended(out: Path, settings: config.Config) -> bool:
    """Returns whether the folder holds the results of a run with these settings.

    Raises:
        CheckpointError: It holds a run of other settings.
    """
    if not (out / "config.toml").exists():
        return False
    differing = config.differences(settings, config.load_run(out).to_dict())
    if differing:
        raise CheckpointError(
            f"{out} holds another run: {'; '.join(differing)}; use the run's own configuration, or "
            "start another run in another folder"
        )
    return (out / "results.json").exists()


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Keeps other processes from training in the folder; the lock ends with the process.

    Waits some seconds for another process to end.

    Raises:
        ConfigError: Another process holds the lock.
    """
    try:
        claim = Claim(out)
    except InvalidArgument as error:
        raise config.ConfigError(str(error)) from None
    try:
        yield
    finally:
        claim.release()


@contextmanager
def report_full_disk(out: Path) -> Iterator[None]:
    """Turns a full disk, on any file of the run, into one CheckpointError."""
    try:
        yield
    except OSError as error:
        if not outputs.is_full_disk(error):
            raise
        raise CheckpointError(
            f"cannot write {error.filename or out}: {error.strerror}; free some space, and "
            "continue with --resume"
        ) from None


def write_settings(out: Path, settings: config.Config, processes: Processes, step: int) -> None:
    """Writes the configuration, and the versions that the run continues under from `step`.

    The same parameters give the same bits only under the same versions, device and number of
    cores. So a change is printed, and kept in `versions.json`.
    """
    write_text(out / "config.toml", settings.to_toml())
    names = ("headwater", "jax", "jaxlib", "numpy", "optax", "orbax-checkpoint")
    now = {
        "python": sys.version.split()[0],
        **{name: version(name) for name in names},
        "device": device_kind(),
        "cores": cores(),
        "processes": processes.count,
    }
    path = out / "versions.json"
    # One entry for each change; a run that starts again from step 0 has this entry alone.
    before = json.loads(read_file(path)) if step and path.exists() else []
    last = before[-1] if before else {}
    changed = [name for name, value in now.items() if name in last and last[name] != value]
    # Of microbatches, each has the same bits on any process.
    harmless = {"processes"} if settings.optimizer.microbatches else set()
    differing = [
        f"{name} is {now[name]!r}, was {last[name]!r}" for name in changed if name not in harmless
    ]
    if differing:
        print(
            f"confluence: {'; '.join(differing)}: from step {step} on the last digits may differ",
            file=sys.stderr,
        )
    if changed or not before:
        write_json(path, [*before, {"after_step": step, **now}])


def truncate_log(path: Path, step: int) -> None:
    """Removes what a killed run logged after its checkpoint of `step`."""
    if not path.exists():
        return
    kept = []
    for line in read_file(path).decode().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            break
        if record["step"] <= step:
            kept.append(line + "\n")
    # Without a checkpoint the run starts again, and logs its first evaluation again.
    write_text(path, "".join(kept) if step else "")


def write_json(path: Path, content: Any) -> None:
    """Writes `content` as JSON, whole or not at all."""
    write_text(path, json.dumps(strict_json(content), indent=1) + "\n")


def strict_json(content: Any) -> Any:
    """Returns `content` with null for NaN and infinities, which JSON does not have."""
    if isinstance(content, Mapping):
        return {key: strict_json(value) for key, value in content.items()}
    if isinstance(content, list):
        return [strict_json(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    write_file(path, text.encode())
