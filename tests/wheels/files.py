"""Checks the files of `make wheels` without installing them.

    python tests/wheels/files.py [DIST]

Every check that fails is printed; the exit status is 1 if there is one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64")
WHEEL_BYTES_MAX = 15_000_000
LICENCES = {"LICENSE-APACHE", "LICENSE-MIT"}
# The licences of the crates inside, which only wheels have.
OF_CRATES = "LICENSE-THIRD-PARTY"
COMMANDS = {"confluence", "headwater", "headwater-reduce"}


def main() -> int:
    """Runs all checks; returns the exit status."""
    dist = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    names = {platform: f"headwater-{version}-cp311-abi3-{platform}.whl" for platform in PLATFORMS}
    source = f"headwater-{version}.tar.gz"
    wrong = missing_or_foreign(dist, {*names.values(), source})
    if wrong:
        return finish(wrong)
    for platform, name in names.items():
        wheel = dist / name
        size = wheel.stat().st_size
        print(f"{name}: {size / 1e6:.1f} MB")
        if size >= WHEEL_BYTES_MAX:
            wrong.append(f"{name}: expected less than {WHEEL_BYTES_MAX:,} bytes, found {size:,}")
        wrong += contents(wheel, version)
        wrong += libraries(wheel, platform)
        # The tag of the file's name says cp311, and abi3audit compares with it.
        wrong += tool("abi3audit", "--strict", "--summary", wheel)
        wrong += tool(
            "check-wheel-contents", "--no-config", "--toplevel", "confluence,headwater", wheel
        )
    print(f"{source}: {(dist / source).stat().st_size / 1e6:.1f} MB")
    wrong += source_contents(dist / source)
    wrong += tool(
        "twine", "check", "--strict", *(dist / name for name in names.values()), dist / source
    )
    return finish(wrong)


def finish(wrong: list[str]) -> int:
    """Prints what is wrong, or OK; returns the exit status."""
    for line in wrong:
        print(f"FAILED: {line}", file=sys.stderr)
    if not wrong:
        print("wheels and source package: OK")
    return 1 if wrong else 0


def missing_or_foreign(dist: Path, expected: set[str]) -> list[str]:
    """Compares the names of the files with those expected."""
    found = {path.name for path in dist.glob("headwater-*")}
    return [
        *(
            f"expected {dist}/{name}, found none; run make wheels"
            for name in sorted(expected - found)
        ),
        *(f"expected no {dist}/{name}; remove it" for name in sorted(found - expected)),
    ]


def contents(wheel: Path, version: str) -> list[str]:
    """Checks that a wheel has the package, the licences, the commands and a list of crates."""
    packed = zipfile.ZipFile(wheel)
    names = set(packed.namelist())
    info = f"headwater-{version}.dist-info"
    licences = {f"{info}/licenses/{name}" for name in LICENCES | {OF_CRATES}}
    expected = licences | {"headwater/_headwater.abi3.so"}
    expected |= {name.removeprefix("python/") for name in tracked("python")}
    wrong = [f"{wheel.name}: expected {name}, found none" for name in sorted(expected - names)]
    metadata = packed.read(f"{info}/METADATA").decode()
    if "\nLicense-Expression: Apache-2.0 OR MIT\n" not in metadata:
        wrong.append(f"{wheel.name}: expected the licences in METADATA, found none")
    scripts = packed.read(f"{info}/entry_points.txt").decode()
    commands = set(re.findall(r"^([a-z-]+) ?=", scripts, re.MULTILINE))
    if commands != COMMANDS:
        wrong.append(f"{wheel.name}: expected the commands {COMMANDS}, found {commands}")
    lists = [name for name in names if re.fullmatch(rf"{info}/sboms/.*\.cyclonedx\.json", name)]
    crates = {
        part["name"] for name in lists for part in json.loads(packed.read(name))["components"]
    }
    print(f"  {len(names)} files; its list of crates (CycloneDX) names {len(crates)}")
    if not crates >= {"headwater", "pyo3", "arrow-array", "zstd-sys"}:
        wrong.append(f"{wheel.name}: expected a list of its crates in {info}/sboms, found {lists}")
    if licences <= names:
        texts = packed.read(f"{info}/licenses/{OF_CRATES}").decode()
        named = set(re.findall(r"^(\S+) \d[^ ]*: .", texts, re.MULTILINE))
        print(f"  {OF_CRATES} names {len(named)} crates")
        if not {"pyo3", "arrow-array", "zstd-sys"} <= named <= crates:
            wrong.append(
                f"{wheel.name}: expected crates of its list in {OF_CRATES}, found others: "
                f"{', '.join(sorted(named - crates)) or 'too few'}"
            )
    return wrong


def libraries(wheel: Path, platform: str) -> list[str]:
    """Checks that a wheel runs on its platform, and needs no library of this machine."""
    run = subprocess.run(
        [BIN / "auditwheel", "show", "--json", wheel], capture_output=True, text=True, check=False
    )
    if run.returncode:
        return [f"{wheel.name}: auditwheel show: {run.stderr}"]
    shown = json.loads(run.stdout)
    versions = [version for of in shown["versioned_symbols"].values() for version in of]
    newest = max((v for v in versions if v.startswith("GLIBC_2.")), key=lambda v: float(v[8:]))
    print(f"  auditwheel: {shown['overall_tag']}; the newest symbol is of {newest}")
    expected = {"overall_tag": platform, "external_libs": {}, "unsupported_isa": False}
    found = {name: shown[name] for name in expected}
    if found != expected:
        return [f"{wheel.name}: auditwheel show: expected {expected}, found {found}"]
    return []


def source_contents(source: Path) -> list[str]:
    """Checks that the source package has the licences, and what a locked build needs."""
    with tarfile.open(source) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    expected = {"Cargo.toml", "Cargo.lock", "PKG-INFO", "README.md", "pyproject.toml", *LICENCES}
    # Without `mpi` the lock file would not fit the workspace.
    expected |= {
        name for folder in ("extension", "mpi", "python", "src") for name in tracked(folder)
    }
    return [f"{source.name}: expected {name}, found none" for name in sorted(expected - names)]


def tracked(folder: str) -> list[str]:
    """Returns the files of a folder that git knows."""
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, check=True)
    return listed.stdout.decode().split()


def tool(name: str, *arguments: object) -> list[str]:
    """Runs a tool; returns its output if it fails."""
    run = subprocess.run(
        [BIN / name, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(
        "".join(f"  {name}: {line}\n" for line in run.stdout.splitlines() if line.strip()), end=""
    )
    return [f"{name} ended with status {run.returncode}"] if run.returncode else []


if __name__ == "__main__":
    sys.exit(main())
