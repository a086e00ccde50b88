"""Installs the files of `make wheels` into new environments and uses them there.

    python tests/wheels/installed.py [--dist DIST] [--aarch64-root FOLDER] [--only CHECK ...]

- `pythons`: the x86_64 wheel in Python 3.11, 3.12 and 3.13, without a compiler on the PATH. The
  commands, the loop of the README and a fold have the same digests in each.
- `training`: `pip install WHEEL[jax,sql]` and steps of confluence, in under five minutes.
- `source`: the source package makes a wheel with the same files.
- `aarch64`: the aarch64 wheel in an emulator has the digests of x86_64. FOLDER has the C library
  and a Python of aarch64; tests/wheels/aarch64-root makes it on Debian.
- `golden`: the Rust tests on golden files, compiled for aarch64, in the emulator.

What this machine lacks is printed as skipped. A check that fails ends the program with status 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
PYTHONS = ("3.11", "3.12", "3.13")
TRAINING_SECONDS_MAX = 300
TRAINING_STEPS = 3
GOLDEN_TESTS = 9
# A rank that a launcher started, and that no MPI connects with the others.
LONE_RANK = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}


class CheckFailed(Exception):
    """A check failed; the message says what was expected and found."""


class Environment:
    """A new virtual environment, and processes that see its folder of programs alone."""

    def __init__(self, python: str, folder: Path) -> None:
        self.bin = folder / "bin"
        run([python, "-m", "venv", folder], variables())

    def install(self, requirement: str) -> None:
        """Installs a package and what it needs, all of it as wheels."""
        self.run("python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", requirement)

    def run(
        self, program: str, *arguments: object, **options: object
    ) -> subprocess.CompletedProcess:
        """Runs a program of the environment."""
        return run([self.bin / program, *arguments], variables(PATH=str(self.bin)), **options)


def main() -> int:
    """Runs the checks; returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--aarch64-root", type=Path)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS))
    options = parser.parse_args()
    for name in options.only:
        started, cpu = time.monotonic(), cpu_seconds()
        try:
            with tempfile.TemporaryDirectory(prefix="headwater-wheels-") as folder:
                CHECKS[name](options, Path(folder))
        except CheckFailed as failed:
            print(f"FAILED: {name}: {failed}", file=sys.stderr)
            return 1
        seconds = f"{time.monotonic() - started:.0f} s, {cpu_seconds() - cpu:.0f} CPU seconds"
        say(f"{name}: {seconds}")
    return 0


def pythons(options: argparse.Namespace, folder: Path) -> None:
    """Uses the wheel in each version of Python."""
    wheel = file_of(options.dist, "headwater-*_x86_64.whl")
    digests = {}
    for version, python in found_pythons().items():
        environment = Environment(python, folder / version)
        environment.install(str(wheel))
        printed = environment.run("headwater", "--version").stdout.strip()
        version_of = re.sub(r" \(commit [0-9a-f]{12}(-dirty)?, \w+ kernels\)$", "", printed)
        expect("headwater --version", f"headwater {wheel.name.split('-')[1]}", version_of)
        digests[version] = digests_of(environment.run("python", same_bits()))
        refuses_several_ranks(environment, folder)
        say(f"Python {version}: {printed}; digests {short(digests[version])}")
    if not digests:
        raise CheckFailed(f"expected a Python of {', '.join(PYTHONS)}, found none")
    first = next(iter(digests.values()))
    expect("digests of each Python", dict.fromkeys(digests, first), digests)


def refuses_several_ranks(environment: Environment, folder: Path) -> None:
    """Checks that the command without MPI says how to do without, and how to get one with MPI."""
    script = "import numpy; numpy.save('x.npy', numpy.ones((8, 2)))"
    environment.run("python", "-c", script, cwd=folder)
    command = ["headwater-reduce", "gram", "--input", "x.npy", "--out", "g.npy"]
    refused = environment.run(*command, cwd=folder, more=LONE_RANK, status=1)
    for word in ("without MPI", "--spool", "make setup", "repository"):
        if word not in refused.stderr:
            raise CheckFailed(
                f"expected {word!r} in the message about MPI, found: {refused.stderr}"
            )


def training(options: argparse.Namespace, folder: Path) -> None:
    """Trains steps of confluence, from pip install on."""
    wheel = file_of(options.dist, "headwater-*_x86_64.whl")
    available = found_pythons()
    if not available:
        raise CheckFailed(f"expected a Python of {', '.join(PYTHONS)}, found none")
    version, python = list(available.items())[-1]
    environment = Environment(python, folder / "environment")
    started = time.monotonic()
    environment.install(f"{wheel}[jax,sql]")
    installed = time.monotonic() - started
    environment.run("headwater", "demo-data", "shop", cwd=folder)
    prepare = ["prepare", "shop", "--schema", "shop/schema.toml", "--out", "shop.db"]
    environment.run("headwater", *prepare, cwd=folder)
    settings = [
        "data.stores=shop.db",
        "data.tasks=churn",
        f"optimizer.steps={TRAINING_STEPS}",
        "optimizer.warmup_steps=1",
        "run.evaluate_batches=2",
    ]
    train = ["train", "--config", "cpu-small", "--out", "run"]
    train += [word for setting in settings for word in ("--set", setting)]
    environment.run("confluence", *train, cwd=folder)
    seconds = time.monotonic() - started
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "muon_rate" in line and math.isfinite(line["loss"])]
    expect("steps with a loss", list(range(1, TRAINING_STEPS + 1)), steps)
    times = f"pip install {installed:.0f} s, trained after {seconds:.0f} s"
    say(f"Python {version}: {times}; {lines[-1]}")
    if seconds >= TRAINING_SECONDS_MAX:
        raise CheckFailed(f"expected less than {TRAINING_SECONDS_MAX} s, found {seconds:.0f} s")


def source(options: argparse.Namespace, folder: Path) -> None:
    """Makes a wheel from the source package, with the crates that `make wheels` compiled."""
    packed = file_of(options.dist, "headwater-*.tar.gz")
    wheel = file_of(options.dist, "headwater-*_x86_64.whl")
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    arguments = "--zig --compatibility manylinux_2_28 --strip --target x86_64-unknown-linux-gnu"
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run(
        [*build, "--wheel-dir", folder, packed],
        with_tools(CARGO_TARGET_DIR=str(target), MATURIN_PEP517_ARGS=arguments),
    )
    made = file_of(folder, "headwater-*.whl")
    expect("name of the wheel", wheel.name, made.name)
    released, own = (set(zipfile.ZipFile(path).namelist()) for path in (wheel, made))
    # A wheel for others has the licences of its crates, which `make wheels` collects.
    [licences] = (name for name in released if name.endswith("/LICENSE-THIRD-PARTY"))
    expect("files that only one of the wheels has", {licences}, released ^ own)
    say(f"{packed.name}: makes {made.name}, {len(own)} files")


def aarch64(options: argparse.Namespace, folder: Path) -> None:
    """Uses the aarch64 wheel in an emulator; its digests are those of x86_64."""
    emulator = found_emulator(options, "aarch64")
    if not emulator:
        return
    (python,) = options.aarch64_root.glob("usr/bin/python3.[0-9]*")
    version = python.name.removeprefix("python")
    packages = [*pip_for_aarch64(version), "--target", folder / "aarch64"]
    run([*packages, file_of(options.dist, "headwater-*_aarch64.whl")], variables())
    of_aarch64 = variables(PYTHONPATH=str(folder / "aarch64"))
    started = time.monotonic()
    emulated = digests_of(run([*emulator, python, same_bits()], of_aarch64))
    seconds = time.monotonic() - started
    native = Environment(next(iter(found_pythons().values())), folder / "x86_64")
    native.install(str(file_of(options.dist, "headwater-*_x86_64.whl")))
    expect("digests of aarch64", digests_of(native.run("python", same_bits())), emulated)
    say(f"aarch64, Python {version} in {emulator[0]}, {seconds:.0f} s: digests {short(emulated)}")


def golden(options: argparse.Namespace, folder: Path) -> None:
    """Runs the tests of plan, fold and reducer on golden files and values, compiled for aarch64."""
    emulator = found_emulator(options, "golden")
    if not emulator:
        return
    tests = [word for name in ("plan", "fold", "reducer") for word in ("--test", name)]
    done = run(
        [
            *(TOOLS / "cargo-zigbuild", "test", "--release", "--locked", "--no-default-features"),
            *("--target", "aarch64-unknown-linux-gnu.2.28", *tests, "golden"),
        ],
        with_tools(CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=" ".join(map(str, emulator))),
        cwd=ROOT,
    )
    passed = re.findall(r"^test (\S+) \.\.\. ok$", done.stdout, re.MULTILINE)
    expect("golden tests that pass", GOLDEN_TESTS, len(passed))
    say(f"golden: {', '.join(passed)}")


def found_emulator(options: argparse.Namespace, check: str) -> list[object]:
    """Returns the start of a command that runs programs of aarch64, or nothing."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    root = options.aarch64_root
    if emulator is None:
        say(f"skipped: {check}: no qemu-aarch64 on the PATH (Debian's package is qemu-user-static)")
    elif root is None or not list(root.glob("usr/bin/python3.[0-9]*")):
        say(
            f"skipped: {check}: {root or 'AARCH64_ROOT'} has no usr/bin/python3; on Debian make it"
            " with tests/wheels/aarch64-root FOLDER, and set AARCH64_ROOT=FOLDER"
        )
    else:
        return [emulator, "-L", root.absolute()]
    return []


def pip_for_aarch64(version: str) -> list[str]:
    """Returns the command that installs wheels for aarch64 on another processor."""
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (28, 27, 17)]
    only = ["--only-binary", ":all:", "--python-version", version, "--implementation", "cp"]
    return [sys.executable, "-m", "pip", "install", "--quiet", *only, *platforms]


CHECKS = {
    "pythons": pythons,
    "training": training,
    "source": source,
    "aarch64": aarch64,
    "golden": golden,
}


def found_pythons() -> dict[str, str]:
    """Returns the Pythons of this machine by version: on the PATH, or of pyenv."""
    found = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for version in PYTHONS:
        on_path = [Path(folder) / f"python{version}" for folder in os.environ["PATH"].split(":")]
        of_pyenv = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
        # A shim of pyenv is a file also where its Python is not chosen, and Debian's may lack venv.
        works = (
            str(python) for python in (*on_path, *of_pyenv) if python.is_file() and can_venv(python)
        )
        python = next(works, None)
        if python is None:
            say(f"skipped: Python {version}, which this machine does not have")
        else:
            found[version] = python
    return found


def can_venv(python: Path) -> bool:
    """Whether an interpreter starts and makes virtual environments."""
    command = [python, "-c", "import ensurepip, venv"]
    return (
        subprocess.run(command, capture_output=True, env=variables(), check=False).returncode == 0
    )


def same_bits() -> Path:
    """Returns the program that uses a wheel and prints digests."""
    return ROOT / "tests/wheels/same_bits.py"


def digests_of(process: subprocess.CompletedProcess) -> str:
    """Returns the digests that `same_bits.py` printed."""
    return process.stdout.strip()


def cpu_seconds() -> float:
    """Returns the CPU time of the processes that ended; other work on the machine adds little."""
    of_children = os.times()
    return of_children.children_user + of_children.children_system


def short(digests: str) -> str:
    """Returns a digest of digests, to print."""
    return hashlib.sha256(digests.encode()).hexdigest()[:16]


def file_of(folder: Path, pattern: str) -> Path:
    """Returns the only file of a pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise CheckFailed(f"expected one {folder / pattern}, found {len(found)}; run make wheels")
    return found[0].absolute()


def variables(**others: str) -> dict[str, str]:
    """Returns the environment of this process without what the Makefile and its Python add."""
    added = re.compile("PYTHON(PATH|HOME)|VIRTUAL_ENV|PYO3_.*|MAKE.*")
    return {k: v for k, v in os.environ.items() if not added.fullmatch(k)} | others


def with_tools(**others: str) -> dict[str, str]:
    """Returns these variables with the tools of this Python on the PATH."""
    return variables(PATH=f"{TOOLS}:{os.environ['PATH']}", **others)


def run(
    command: list,
    environment: dict[str, str],
    *,
    cwd: Path | None = None,
    more: dict[str, str] | None = None,
    status: int = 0,
) -> subprocess.CompletedProcess:
    """Runs a command; fails with its output if it ends with another status."""
    words = [str(word) for word in command]
    environment = {**environment, **(more or {}), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    if done.returncode != status:
        found = f"found {done.returncode}:\n{done.stdout}\n{done.stderr}"
        raise CheckFailed(f"{' '.join(words)}: expected status {status}, {found}")
    return done


def expect(what: str, expected: object, found: object) -> None:
    """Fails if two things differ."""
    if expected != found:
        raise CheckFailed(f"{what}: expected {expected}, found {found}")


def say(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
