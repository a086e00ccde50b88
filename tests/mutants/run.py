"""Changes the Python code in small ways, one at a time, and lists the changes that no test notices.

    python tests/mutants/run.py [--share N] [--jobs N] [NAME ...]

NAME is a file such as `confluence/model.py`; default: all files of `which_tests.py`. `--share N`
takes each Nth change, always the same ones. Survivors that `survivors.md` names with a reason are
accepted; others end the command with status 1.

The tests run in copies of the repository, so the working tree is never changed.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import py_compile
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

from mutations import Mutant, mutants
from record import accepted, check, is_chosen, report
from which_tests import TESTS

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests/python"))

import postgres  # noqa: E402

_SERVER = Path(__file__).parent / "server.py"
RECORD = Path(__file__).parent / "survivors.md"
# What a file needs that may be missing here, and whether it is there. PyTorch has an environment of
# its own; run this by its Python.
NEEDED = {
    "headwater/torch.py": ("PyTorch", find_spec("torch") is not None),
    "headwater/_postgres.py": ("a Postgres server", postgres.programs() is not None),
}


class Copy:
    """A copy of the repository's Python code and tests, whose files may be changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[str] | None = None
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        for name in ("python", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            compileall.compile_dir(folder / name, quiet=2)
        shutil.copy(ROOT / "pyproject.toml", folder)
        for library in (ROOT / "python/headwater").glob("*.so"):
            (folder / "python/headwater" / library.name).symlink_to(library)
        # Those of files that change are known by the digest of their text.
        by_digest = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(folder, quiet=2, invalidation_mode=by_digest)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "python"),
            # A file that changes twice within a second would be read from its old bytecode.
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            # To compile takes most of the time.
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        }

    def passes(self, file: str, text: str, seconds: float) -> bool:
        """Returns whether the tests of a file pass with another text of it."""
        path = self._folder / "python" / file
        before = path.read_text()
        path.write_text(text)
        try:
            return all(self._pytest(tests, seconds) for tests in TESTS[file])
        finally:
            path.write_text(before)

    def _pytest(self, tests: list[str], seconds: float) -> bool:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-W", "ignore", _SERVER],
                cwd=self._folder, env=self._environment, start_new_session=True, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps({"tests": tests, "seconds": seconds}) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer:
            raise RuntimeError("the server that runs the tests has ended")
        return answer == "0\n"

    def stop(self) -> None:
        """Ends the server, and with it the tests that run."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait()


def chosen(file: str, share: int) -> list[Mutant]:
    """Returns each `share`-th mutant of a file, by a digest of its name."""
    found = mutants((ROOT / "python" / file).read_text())
    return [of for of in found if is_chosen(file, of.name, share)]


def _limit(copy: Copy, file: str) -> float:
    """Returns the seconds after which the tests of a changed file count as failed."""
    start = time.monotonic()
    if not copy.passes(file, (ROOT / "python" / file).read_text(), 1800):
        sys.exit(f"the tests of {file} fail without a change; mend them first")
    return 20 + 5 * (time.monotonic() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="NAME", help="default: all files with tests")
    parser.add_argument("--share", type=int, default=1, help="take each Nth change (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="default: all cores")
    arguments = parser.parse_args()
    for unknown in set(arguments.files) - set(TESTS):
        parser.error(f"expected files among {', '.join(TESTS)}; found {unknown}")
    lacking = {file: what for file, (what, is_there) in NEEDED.items() if not is_there}
    for file in lacking.keys() & set(arguments.files):
        parser.error(f"expected {lacking[file]}, which the tests of {file} need, found none")
    files = arguments.files or [file for file in TESTS if file not in lacking]
    work: queue.Queue[tuple[str, Mutant]] = queue.Queue()
    for file in files:
        for mutant in chosen(file, arguments.share):
            work.put((file, mutant))
    check(RECORD, {(file, of.name) for file in files for of in chosen(file, 1)})
    count, reasons = work.qsize(), accepted(RECORD)
    survivors: list[tuple[str, Mutant]] = []
    print(f"{count} mutants of {len(files)} files", flush=True)

    def run(copy: Copy, limits: dict[str, float]) -> None:
        while True:
            try:
                file, mutant = work.get_nowait()
            except queue.Empty:
                return
            if copy.passes(file, mutant.text, limits[file]):
                survivors.append((file, mutant))
                known = reasons.get((file, mutant.name))
                shown = f"known ({known})" if known else "SURVIVED"
                print(f"{shown}: {file}:{mutant.line} {mutant.name}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(arguments.jobs)]
        limits = {file: _limit(copies[0], file) for file in files}
        jobs = [threading.Thread(target=run, args=[copy, limits]) for copy in copies]
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        for job in jobs:
            job.start()
        try:
            for job in jobs:
                job.join()
        except KeyboardInterrupt:
            # Each job ends after its present mutant.
            work.queue.clear()
            print("stopping", flush=True)
            for copy in copies:
                copy.stop()
            for job in jobs:
                job.join()
            return 130
    if not work.empty():
        sys.exit(f"{work.qsize()} mutants were not tried, because the servers of the tests ended")
    new = [of for of in survivors if (of[0], of[1].name) not in reasons]
    return report(count, len(survivors), len(new))


if __name__ == "__main__":
    sys.exit(main())
