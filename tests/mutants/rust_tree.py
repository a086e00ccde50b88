"""A copy of the repository whose Rust code holds all its mutants, and what builds it.

A mutant that does not compile is found by the compiler's errors and left out of the next build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Tests in Python run these: questions about links.
_LEFT_OUT = ("src/store/pairs.rs",)
ROOMS = ("plan", "durable", "store", "sampler", "reducer", "fold")
# The binaries with tests: the library's own, and the rooms'.
TESTS = ("plan", "store", "fold", "sampler", "reducer")
_TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
_HOME = _TARGET / "mutants"
TREE = _HOME / "tree"
_REWRITER = Path(__file__).parent / "rust"
_FEATURES = "arrayrecord,same-features"
# Lints would only speak of what a mutant does.
_LINTS = """
[lints.rust]
warnings = "allow"
arithmetic_overflow = "allow"
overflowing_literals = "allow"
unconditional_panic = "allow"
unconditional_recursion = "allow"
"""
# The dependencies stay those of the other builds.
_PROFILE = """
[profile.release.package.headwater]
opt-level = 1
debug-assertions = true
"""


@dataclass(frozen=True)
class Mutant:
    """A change of a file; `name` stays the same when other lines of the file change."""

    number: int
    file: str
    line: int
    name: str

    @property
    def key(self) -> str:
        return f"{self.file}\t{self.name}"

    @property
    def room(self) -> str:
        return self.file.split("/")[1].removesuffix(".rs")


def built() -> tuple[list[Mutant], list[Mutant], dict[str, Path]]:
    """Builds the copy; returns its mutants, those that do not compile, and the test binaries."""
    _copy()
    record = _HOME / "dropped"
    # What did not compile the last time is not tried again.
    dropped = set(record.read_text().splitlines()) if record.exists() else set()
    while True:
        record.write_text("\n".join(sorted(dropped)))
        every = _rewritten(record)
        errors, binaries = _build()
        if not errors:
            break
        blamed = set().union(*(_blamed(error) for error in errors))
        new = {of.key for of in every if of.number in blamed} - dropped
        # A value that is not dropped breaks what comes after it, far from the change.
        files = {span["file_name"] for error in errors for span in error["spans"]}
        drops = {of.key for of in every if of.file in files and "drop(" in of.name}
        new = new or drops - dropped
        print(f"{len(errors)} errors of the compiler, {len(new)} mutants left out", flush=True)
        if not new:
            sys.exit("\n".join(error["rendered"] for error in errors[:20]))
        dropped |= new
    lost = [of for of in every if of.key in dropped]
    return [of for of in every if of.key not in dropped], lost, binaries


def _copy() -> None:
    """Copies what Git knows of; the rewriter writes the files with mutants."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    if TREE.exists():
        for path in [path for path in TREE.rglob("*") if path.is_file()]:
            if str(path.relative_to(TREE)) not in names | {"src/mutant.rs"}:
                path.unlink()
    written = {"Cargo.toml", "src/lib.rs", *_files()}
    for name in names - written:
        source, to = ROOT / name, TREE / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_bytes() != source.read_bytes():
            shutil.copyfile(source, to)
    # Files in the place of the folders where proptest keeps failures: what one mutant fails at is
    # no seed for the next.
    for folder in ("src", "tests"):
        (TREE / folder / "proptest-regressions").touch()
    manifest = (ROOT / "Cargo.toml").read_text()
    parts = re.split(r"^(?=\[)", manifest, flags=re.MULTILINE)
    text = "".join(part for part in parts if not part.startswith("[lints")) + _LINTS + _PROFILE
    if not (TREE / "Cargo.toml").exists() or (TREE / "Cargo.toml").read_text() != text:
        (TREE / "Cargo.toml").write_text(text)


def _files() -> list[str]:
    """Returns the files that are changed, which are those of the rooms without their tests."""
    found = [ROOT / "src/durable.rs"]
    for room in ROOMS:
        found += (ROOT / "src" / room).rglob("*.rs")
    names = sorted(str(path.relative_to(ROOT)) for path in found)
    return [name for name in names if name not in _LEFT_OUT and not name.endswith("tests.rs")]


def _rewritten(dropped: Path) -> list[Mutant]:
    """Writes the files of the copy that have mutants, and returns all mutants."""
    manifest = str(_REWRITER / "Cargo.toml")
    cargo = ["cargo", "run", "--locked", "--quiet", "--manifest-path", manifest, "--"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(_HOME / "rewriter")}
    made = subprocess.run(
        [*cargo, str(ROOT), str(TREE), str(dropped), *_files()],
        env=environment, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    rows = [line.split("\t") for line in made.stdout.splitlines()]
    return [Mutant(int(number), file, int(line), name) for number, file, line, name in rows]


def _build() -> tuple[list[dict[str, Any]], dict[str, Path]]:
    """Returns the errors of the compiler, and the test binaries by name."""
    tests = [word for name in TESTS for word in ("--test", name)]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(_TARGET), "CARGO_INCREMENTAL": "1"}
    made = subprocess.run(
        ["cargo", "test", "--locked", "--release", "--no-run", "--jobs", "2", "--lib", *tests,
         "--features", _FEATURES, "--message-format", "json"],
        cwd=TREE, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    errors, binaries = [], {}
    for line in made.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
            errors.append(message["message"])
        if message["reason"] == "compiler-artifact" and message["profile"]["test"]:
            name = message["target"]["name"]
            binaries["lib" if name == "headwater" else name] = Path(message["executable"])
    if made.returncode and not errors:
        sys.exit("the copy does not build; Cargo says why above")
    return errors, binaries


def _blamed(error: dict[str, Any]) -> set[int]:
    """Returns the mutants that an error points to: those around its places, else on their lines."""
    # The places of a macro of the standard library are in no file of the copy.
    spans = [span for span in error["spans"] if (TREE / span["file_name"]).exists()]
    spans.sort(key=lambda span: not span["is_primary"])
    for span in spans:
        text = (TREE / span["file_name"]).read_bytes()
        before, after = text[: span["byte_end"]], text[span["byte_start"] :]
        opened = {int(of) for of in re.findall(rb"/\*m(\d+)\*/", before)}
        around = opened & {int(of) for of in re.findall(rb"/\*(\d+)m\*/", after)}
        if around:
            return around
    for span in spans:
        lines = (TREE / span["file_name"]).read_bytes().splitlines()
        near = b"".join(lines[span["line_start"] - 1 : span["line_end"]])
        if found := {int(of) for of in re.findall(rb"/\*m(\d+)\*/", near)}:
            return found
    return set()
