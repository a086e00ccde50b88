"""Writes the licences of all crates that the compiled module has inside, for a wheel.

    python extension/licences.py TARGET FILE

A licence such as MIT or Apache-2.0 asks that its text comes with the program. Cargo says which
crates a build for TARGET has; the texts are in their sources. Equal texts are written once, with
the crates that they are of. A crate without any text is named with its licence alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)
# Its C library is in a folder of its own, with a licence of its own.
DEEPER = {"zstd-sys": "zstd"}
RULE = "-" * 80


def crates(target: str) -> list[dict]:
    """Returns the crates of the module, but for headwater's own, by name and version."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path"]
    command += [str(ROOT / "extension" / "Cargo.toml"), "--features", "arrayrecord"]
    command += ["--filter-platform", target]
    listed = subprocess.run(command, capture_output=True, check=True, text=True)
    found = json.loads(listed.stdout)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    waiting, seen = [found["resolve"]["root"]], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for needed in nodes[name]["deps"]:
            # Tools and libraries of the build scripts are not in the module.
            if any(kind["kind"] is None for kind in needed["dep_kinds"]):
                waiting.append(needed["pkg"])
    foreign = [packages[name] for name in seen if packages[name]["source"]]
    return sorted(foreign, key=lambda package: (package["name"], package["version"]))


def texts(package: dict) -> list[str]:
    """Returns the texts of a crate's licences."""
    folder = Path(package["manifest_path"]).parent
    folders = [folder, folder / DEEPER.get(package["name"], ".")]
    files = {
        file
        for of in folders
        for file in of.iterdir()
        if file.is_file() and NAMES.fullmatch(file.name)
    }
    read = (file.read_text(encoding="utf-8", errors="replace") for file in sorted(files))
    return ["\n".join(line.rstrip() for line in text.strip().splitlines()) for text in read]


def main() -> None:
    """Writes the file, and says what it has."""
    target, out = sys.argv[1], Path(sys.argv[2])
    found = crates(target)
    of_texts: dict[str, list[str]] = {}
    lines = ["The compiled module of headwater has these crates inside, with their licences:", ""]
    without = []
    for package in found:
        name = f"{package['name']} {package['version']}"
        own = texts(package)
        if not own:
            without.append(name)
        for text in own:
            of_texts.setdefault(text, []).append(name)
        note = "" if own else " (no text in its source)"
        lines.append(f"{name}: {package['license']}{note}")
    for text, names in of_texts.items():
        lines += ["", RULE, *names, RULE, "", text]
    out.write_text("\n".join(lines) + "\n")
    print(f"{out}: {len(found)} crates, {len(of_texts)} texts; without a text: {len(without)}")


if __name__ == "__main__":
    main()
