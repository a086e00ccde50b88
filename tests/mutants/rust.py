"""Changes the Rust code in small ways, one at a time, and lists the changes that no test notices.

    python tests/mutants/rust.py [--share N] [--jobs N] [--only TEXT]... [ROOM ...]

All mutants are compiled at once, each behind a switch. Each test runs once to record the mutants
that it reaches. A mutant then runs with the tests that reach it, those of its room and the quick
ones first, until one fails. Survivors that `survivors-rust.md` names with a reason are accepted;
others end the command with status 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from record import accepted, check, is_chosen, report
from rust_tree import ROOMS, TREE, Mutant, built

_Item = TypeVar("_Item")
RECORD = Path(__file__).parent / "survivors-rust.md"
# What a mutant may take, and no test needs.
_MEMORY_MAX, _FILE_MAX = 16 << 30, 1 << 30
# The simulated jobs of one test; a mutant needs no rare ones.
_SIMULATIONS = "300"
# Tests that take longer, most of them of large inputs, are not run with mutants.
_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Test:
    """A test function, the seconds that it takes, and the mutants that it reaches."""

    binary: str
    name: str
    seconds: float
    reached: frozenset[int]

    def is_of(self, room: str) -> bool:
        return self.binary == room or self.name.startswith(f"{room}::")


class Job:
    """Runs tests one after the other, in a folder of its own."""

    def __init__(self, folder: Path, binaries: dict[str, Path]) -> None:
        folder.mkdir()
        self._folder = folder
        self._binaries = binaries
        self._running: subprocess.Popen[bytes] | None = None

    def passes(self, binary: str, name: str, seconds: float, **switches: str) -> bool:
        """Returns whether a test passes within a time."""
        temporary = self._folder / "temporary"
        temporary.mkdir()
        environment = {
            **os.environ,
            "HEADWATER_SIMULATIONS": _SIMULATIONS,
            "RUST_BACKTRACE": "0",
            "TMPDIR": str(temporary),
            **switches,
        }
        self._running = process = subprocess.Popen(
            [str(self._binaries[binary]), "--exact", name, "--test-threads", "1"],
            cwd=TREE, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.stop()
            process.wait()
            shutil.rmtree(temporary, ignore_errors=True)

    def stop(self) -> None:
        """Ends the test that runs, and all processes that it started."""
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)

    def recorded(self, binary: str, name: str, count: int) -> Test:
        """Runs a test without a mutant, and returns what it takes and reaches."""
        record = self._folder / "reached"
        record.write_bytes(bytes(count))
        start = time.monotonic()
        passes = self.passes(binary, name, _SECONDS_MAX, HEADWATER_MUTANTS_REACHED=str(record))
        seconds = time.monotonic() - start
        if seconds >= _SECONDS_MAX:
            print(f"left out, for it takes too long: {binary} {name}", flush=True)
            return Test(binary, name, seconds, frozenset())
        if not passes:
            sys.exit(f"the test {name} of {binary} fails without a change; mend it first")
        reached = frozenset(at for at, byte in enumerate(record.read_bytes()) if byte)
        return Test(binary, name, seconds, reached)

    def survives(self, mutant: Mutant, tests: list[Test]) -> bool:
        """Returns whether no test notices a mutant; a test that takes too long does."""
        mine = [test for test in tests if mutant.number in test.reached]
        mine.sort(key=lambda test: (not test.is_of(mutant.room), test.seconds))
        switch = {"HEADWATER_MUTANT": str(mutant.number)}
        return all(self.passes(of.binary, of.name, 5 + 8 * of.seconds, **switch) for of in mine)


def _names(binary: Path) -> list[str]:
    """Returns the names of the tests of a binary, without those that are ignored."""

    def listed(*options: str) -> set[str]:
        command = [str(binary), "--list", "--format", "terse", *options]
        found = subprocess.run(command, cwd=TREE, check=True, capture_output=True, text=True)
        return {name.removesuffix(": test") for name in found.stdout.splitlines()}

    return sorted(listed() - listed("--ignored"))


def _recorded(jobs: list[Job], binaries: dict[str, Path], count: int) -> list[Test]:
    """Returns all tests; those of binaries that stay the same are recorded once."""
    stamp = " ".join(f"{path} {path.stat().st_mtime_ns}" for _, path in sorted(binaries.items()))
    record = TREE.parent / "reached"
    lines = record.read_text().splitlines() if record.exists() else []
    if lines[:1] != [stamp]:
        lines = [stamp]
        record.write_text(f"{stamp}\n")
    rows = [json.loads(line) for line in lines[1:]]
    tests = [Test(*of[:3], frozenset(of[3])) for of in rows]  # type: ignore[call-arg]
    known = {(of.binary, of.name) for of in tests}
    work = [(binary, name) for binary, path in binaries.items() for name in _names(path)]
    print(f"recording what {len(work) - len(known)} tests reach", flush=True)

    def run(job: Job, of: tuple[str, str]) -> None:
        test = job.recorded(*of, count)
        tests.append(test)
        row = [test.binary, test.name, test.seconds, sorted(test.reached)]
        with record.open("a") as file:
            file.write(f"{json.dumps(row)}\n")

    _shared(jobs, run, [of for of in work if of not in known])
    return tests


def _shared(jobs: list[Job], task: Callable[[Job, _Item], None], work: Iterable[_Item]) -> None:
    """Calls `task(job, item)` for every item of the work, one at a time in each job."""
    free: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        free.put(job)

    def run(item: _Item) -> None:
        job = free.get()
        try:
            task(job, item)
        finally:
            free.put(job)

    with ThreadPoolExecutor(len(jobs)) as pool:
        try:
            for done in as_completed([pool.submit(run, item) for item in work]):
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for job in jobs:
                job.stop()
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"default: {', '.join(ROOMS)}")
    parser.add_argument("--share", type=int, default=1, help="take each Nth change (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument(
        "--only", action="append", metavar="TEXT",
        help="changes whose file and name have TEXT; given several times, one of the texts",
    )  # fmt: skip
    arguments = parser.parse_args()
    for unknown in set(arguments.rooms) - set(ROOMS):
        parser.error(f"expected rooms among {', '.join(ROOMS)}; found {unknown}")
    rooms = arguments.rooms or ROOMS
    mutants, lost, binaries = built()
    # The same change of an equal line elsewhere in the function needs no test of its own.
    named = {(of.file, of.name): of for of in reversed(mutants)}
    chosen = [
        of
        for of in reversed(named.values())
        if of.room in rooms
        and is_chosen(of.file, of.name, arguments.share)
        and any(text in f"{of.file} {of.name}" for text in arguments.only or [""])
    ]
    lost = [of for of in lost if of.room in rooms]
    print(f"{len(chosen)} mutants of {', '.join(rooms)}; {len(lost)} do not compile", flush=True)
    check(RECORD, {(of.file, of.name) for of in mutants + lost if of.room in rooms})
    reasons = accepted(RECORD)
    survivors: list[Mutant] = []
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX, _MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_MAX, _FILE_MAX))
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(Path(folder) / str(number), binaries) for number in range(arguments.jobs)]
        tests = _recorded(jobs, binaries, 1 + max(of.number for of in mutants))
        reached = {number for test in tests for number in test.reached}

        def run(job: Job, mutant: Mutant) -> None:
            if job.survives(mutant, tests):
                survivors.append(mutant)
                reason = reasons.get((mutant.file, mutant.name))
                shown = f"known ({reason})" if reason else "SURVIVED"
                how = "" if mutant.number in reached else " (no test reaches it)"
                print(f"{shown}: {mutant.file}:{mutant.line} {mutant.name}{how}", flush=True)

        try:
            _shared(jobs, run, chosen)
        except KeyboardInterrupt:
            print("stopped", flush=True)
            return 130
    new = [of for of in survivors if (of.file, of.name) not in reasons]
    return report(len(chosen), len(survivors), len(new))


if __name__ == "__main__":
    sys.exit(main())
