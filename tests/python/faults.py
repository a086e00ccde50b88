"""Fails the n-th call of the package, for each n, in processes forked from this one.

Runs under `tests/faults/inject.c`, which counts and fails the calls between two marks. The
arguments are a folder with the inputs, an empty folder, and how many calls of each kind fail at
each entrance. Prints a row for each kind, and a line for each run that broke a law.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

# All that is imported at the first use is loaded here, before any call fails.
import duckdb
import numpy as np
import numpy.ma
import pyarrow  # noqa: F401

import headwater
import headwater._duckdb_file
import headwater._sql
from headwater.reduce import GramJob, Reduction, Worker

PATIENCE_SECONDS = 30
SETTINGS = {
    "default_batch_size": 4,
    "default_sequence_length": 64,
    "max_rows": 16,
    "num_threads": 1,
    "num_prefetch": 1,
}
JOB = GramJob(200, 3, "numbers", 8)
ROWS = (np.arange(600, dtype=np.float32).reshape(200, 3) * 7 % 31) / 8


class State(ctypes.Structure):
    """`struct state` of inject.c."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("target", "first", "last", "error", "bytes_min")),
        *((name, ctypes.c_uint64) for name in ("counts", "calls", "faults")),
        ("what", ctypes.c_char * 448),
    ]


#: An allocation of more than 1 MiB depends on the data, and never ends the process.
LARGE = (1 << 20) + 1
#: Name, target, error, size, and whether calls fail from the n-th on.
KINDS = [
    ("EIO once", 0, 5, 0, False),
    ("EIO from then on", 0, 5, 0, True),
    ("EINTR once", 0, 4, 0, False),
    ("ENOSPC once", 1, 28, 0, False),
    ("ENOSPC from then on", 1, 28, 0, True),
    ("short from then on", 2, 0, 0, True),
    ("no memory once", 3, 12, 1024, False),
    ("no memory from then on", 3, 12, 1024, True),
    ("no large memory once", 3, 12, LARGE, False),
]
MEMORY = 3
#: How the standard libraries of Rust, C and C++, the last below DuckDB, end a process without
#: memory for a small thing.
ABORTS = [
    "memory allocation of",
    "cannot allocate memory for thread-local data: ABORT",
    "std::bad_alloc",
    "Rust cannot catch foreign exceptions",
]

library = ctypes.CDLL(None)
library.faults_state.restype = ctypes.POINTER(State)
state = library.faults_state().contents


def digest(batch) -> str:
    found = hashlib.sha256()
    for name in sorted(batch):
        found.update(np.ascontiguousarray(batch[name]).view(np.uint8).tobytes())
    return found.hexdigest()


def sample() -> None:
    sampler = headwater.Sampler("store", seed=7, **SETTINGS)
    print(digest(sampler.next_train_batch()))
    sampler.save_cursor("run.cursor")
    print(digest(sampler.next_train_batch()))
    sampler.shutdown()


def resume() -> None:
    sampler = headwater.Sampler("store", seed=7, **SETTINGS)
    sampler.resume("run.cursor")
    print(digest(sampler.next_train_batch()))
    sampler.save_cursor("run.cursor")
    sampler.shutdown()


def verify() -> None:
    headwater.Store("store").verify()


def prepare() -> None:
    headwater.prepare("data", "schema.toml", "db", dimension=8, threads=1, force=True)


def fold() -> None:
    worker, reduction = Worker(JOB, threads=1), Reduction(JOB)
    if Path("half.portion").exists():
        reduction.receive(Path("half.portion").read_bytes())
    for start in range(0, 200, 40):
        worker.push(ROWS[start : start + 40])
    reduction.receive(worker.portion())
    reduction.save("half.portion")
    print(reduction.digest, reduction.result().sum())


def events() -> None:
    rows = headwater.Events("events", seed=1, batch_size=2, sequence_length=128)
    print(digest(next(rows)))
    rows.save_cursor("run.cursor")


def evaluate() -> None:
    with headwater.Sampler("store", seed=7, **SETTINGS) as sampler:
        print(*(digest(batch) for batch in sampler.evaluate("train")))


def rows_asked_for() -> None:
    with headwater.Sampler("store", seed=7, **SETTINGS) as sampler:
        print(digest(sampler.sample("vip", ["ann", "bob"], ["1970-01-31", "1970-02-11"])))


def frames() -> None:
    store = headwater.Store("store")
    for frame in [*store.tables.values(), *store.tasks.values()]:
        print(frame.to_arrow().to_pylist())


def draft() -> None:
    print(headwater.draft_schema("data"))


def audit() -> None:
    print(headwater.audit("store", seeds=100))


def prepare_sql() -> None:
    headwater.prepare("data", "sql.toml", "db", dimension=8, threads=1, force=True)


def write_rows() -> None:
    np.save("x.npy", ROWS)


def write_duckdb() -> None:
    with duckdb.connect("shop.duckdb") as shop:
        for table in ("customers", "orders"):
            shop.execute(f"CREATE TABLE {table} AS FROM read_csv('data/{table}.csv')")


def prepare_duckdb() -> None:
    headwater.prepare("shop.duckdb", "schema.toml", "db", dimension=8, threads=1, force=True)


def fold_files() -> None:
    print(headwater.reduce.gram("x.npy", chunk_rows=8, threads=1).digest)
    print(headwater.reduce.exact("x.npy", threads=1).digest)


def fold_arrays() -> None:
    print(headwater.reduce.gram(ROWS, chunk_rows=8, threads=1).digest)
    print(headwater.reduce.moments(ROWS, chunk_rows=8, threads=1).digest)


#: Name, what is run, what is run before it, and the files that it writes.
ENTRANCES: list[tuple[str, Callable[[], None], list[Callable[[], None]], list[str]]] = [
    ("Sampler", sample, [], ["run.cursor"]),
    ("Sampler.resume", resume, [sample], ["run.cursor"]),
    ("Store.verify", verify, [], []),
    ("prepare", prepare, [prepare], ["db"]),
    ("Worker and Reduction", fold, [], ["half.portion"]),
    ("Reduction again", fold, [fold], ["half.portion"]),
    ("Events", events, [], ["run.cursor"]),
    ("Sampler.evaluate", evaluate, [], []),
    ("Sampler.sample", rows_asked_for, [], []),
    ("tables and tasks", frames, [], []),
    ("draft_schema", draft, [], []),
    ("audit", audit, [], []),
    ("prepare with SQL", prepare_sql, [prepare_sql], ["db"]),
    ("prepare of DuckDB", prepare_duckdb, [write_duckdb, prepare_duckdb], ["db"]),
    ("folds of files", fold_files, [write_rows], []),
    ("folds of arrays", fold_arrays, [], []),
]


def tree(folder: Path) -> dict[str, bytes | None]:
    paths = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in paths}


def restore(folder: Path, files: dict[str, bytes | None]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).mkdir() if content is None else (folder / name).write_bytes(content)


def redirect(path: Path, stream: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, stream)
    os.close(file)


def child(run: Callable[[], None], folder: Path, beside: Path) -> None:
    """Runs in a forked process, which it ends."""
    status = 1
    try:
        os.chdir(folder)
        redirect(beside / "stdout", 1)
        redirect(beside / "message", 2)
        library.faults_begin()
        run()
        sys.stdout.flush()
        status = 0
    except (headwater.HeadwaterError, OSError, MemoryError) as error:
        library.faults_end()
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    except BaseException:
        library.faults_end()
        traceback.print_exc()
    finally:
        library.faults_end()
        sys.stderr.flush()
        os._exit(status)


class Bench:
    """An entrance, with the files before it and after it."""

    def __init__(self, entrance, base: Path, room: Path) -> None:
        self.name, self.run, given, self.outputs = entrance
        self.folder, self.beside = room / "here", room / "beside"
        self.beside.mkdir(exist_ok=True)
        restore(self.folder, tree(base))
        for run in given:
            assert self.start(run) == 0, self.message()
        self.before = tree(self.folder)
        assert self.start(self.run) == 0, self.message()
        self.after, self.said = tree(self.folder), (self.beside / "stdout").read_bytes()

    def message(self) -> str:
        # An abort may be followed by its place in the program.
        words = (self.beside / "message").read_text(errors="replace")
        return words.split("stack backtrace:")[0].strip()

    def start(self, run, kind=KINDS[0], first: int = 0) -> int | None:
        """Returns the exit status, minus a signal, or None when it does not end."""
        _, state.target, state.error, state.bytes_min, goes_on = kind
        state.first, state.last = first, 2**64 - 1 if goes_on else first
        state.calls = state.faults = state.counts = 0
        state.what = b""
        ctypes.memset(ctypes.addressof(state) + State.what.offset, 0, State.what.size)
        number = os.fork()
        if number == 0:
            child(run, self.folder, self.beside)
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            found, status = os.waitpid(number, os.WNOHANG)
            if found:
                state.counts = 0
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.0005)
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        state.counts = 0
        return None

    def fail_each(self, kind, count: int) -> list[str]:
        restore(self.folder, self.before)
        assert self.start(self.run, kind) == 0, self.message()
        calls, broken, ends = state.calls, [], {"success": 0, "error": 0, "abort": 0}
        faults, tries = 0, min(count, calls)
        for number in range(tries):
            first = 1 + number * calls // tries
            restore(self.folder, self.before)
            status = self.start(self.run, kind, first)
            faults += state.faults > 0
            what, message = state.what.decode(errors="replace"), self.message()
            law = self.broken(status, message, kind)
            if law:
                broken.append(f"{self.name}: {kind[0]} {first}: {what}: {status}: {law}: {message}")
            else:
                ends["success" if status == 0 else "error" if status == 1 else "abort"] += 1
        print("|", *(f"{cell} |" for cell in [self.name, kind[0], calls, faults, *ends.values()]),
              len(broken), "|", flush=True)  # fmt: skip
        return broken

    def broken(self, status: int | None, message: str, kind) -> str | None:
        """Returns the law that a run broke."""
        # NumPy and Python themselves may fail so where they have no memory for a small thing.
        if kind[1] == MEMORY and kind[3] < LARGE and "returned NULL without setting" in message:
            return None
        for word in ["panick", "Panic", "Traceback", "internal error", "Fatal"]:
            if word in message:
                return f"a panic, by the word {word!r}"
        is_abort = status in (-signal.SIGABRT, 127) and any(words in message for words in ABORTS)
        may_abort = kind[1] == MEMORY and kind[3] < LARGE
        if status not in (0, 1) and not (is_abort and may_abort):
            return f"it ended with {status}"
        if status == 1 and not message:
            return "an error without a message"
        found = tree(self.folder)
        said = (self.beside / "stdout").read_bytes()
        # An audit goes on without the part for which there is no memory, and says so.
        is_excused = self.run is audit and kind[1] == MEMORY and b"cannot allocate" in said
        if status == 0 and said != self.said and not is_excused:
            return "success with another output"
        for output in self.outputs:
            now, old, new = (
                {name: files[name] for name in files if Path(name).is_relative_to(output)}
                for files in (found, self.before, self.after)
            )
            if now != new and (status == 0 or now != old):
                return f"{output} is neither the old one nor the new one"
        inputs = {n: b for n, b in self.before.items() if n.split("/")[0] not in self.outputs}
        if any(found.get(name, b"?") != content for name, content in inputs.items()):
            return "an input has changed"
        if found not in (self.before, self.after) and self.run is not resume:
            if self.start(self.run) != 0:
                return f"the next run failed: {self.message()}"
            if tree(self.folder) != self.after:
                return f"after the next run {sorted(tree(self.folder).keys() ^ self.after.keys())}"
        return None


def main() -> None:
    base, room, count, *only = sys.argv[1:]
    broken = []
    for entrance in ENTRANCES:
        if only and only[0] not in entrance[0]:
            continue
        bench = Bench(entrance, Path(base), Path(room))
        for kind in KINDS:
            broken += bench.fail_each(kind, int(count))
    print(*broken, sep="\n")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
