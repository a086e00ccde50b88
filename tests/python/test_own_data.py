"""The transcript of docs/own-data.md on F1DB: from renamed tables to a configuration.

The page is the source of the program that renames, of the commands, and of the edits. Training is
not repeated here, because it takes minutes: test_init.py trains a store that it configured.
"""

from __future__ import annotations

import csv
import os
import re
import tomllib
from pathlib import Path

import pytest

from test_readme import ROOT, blocks, run_block, run_console

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs/own-data.md"
EDITED_LINES_MAX = 10
# The commands of the page that are not repeated.
TRAINS = ("confluence train", "confluence evaluate")
# The table that a key of F1DB refers to, by the name that the page takes away.
REFERENCES = {
    "raceId": "races",
    "driverId": "drivers",
    "constructorId": "constructors",
    "engineManufacturerId": "engine_manufacturers",
    "tyreManufacturerId": "tyre_manufacturers",
    "circuitId": "circuits",
    "grandPrixId": "grands_prix",
    "continentId": "continents",
    "countryId": "countries",
    "countryOfBirthCountryId": "countries",
    "nationalityCountryId": "countries",
    "secondNationalityCountryId": "countries",
}


def hunks(text: str) -> list[list[str]]:
    """The hunks of a diff, each as its lines with their signs; `@@` begins one."""
    return [part.splitlines()[1:] for part in re.split(r"^@@", text, flags=re.MULTILINE)[1:]]


def edited_lines(hunk: list[str]) -> int:
    """The lines of a file that a hunk changes, adds or removes; a changed line is one."""
    return max(sum(line[0] == sign for line in hunk) for sign in "+-")


def is_line(shown: str, line: str) -> bool:
    """Whether a line is as shown; `...` at the end stands for its rest."""
    return line.startswith(shown[:-3]) if shown.endswith("...") else line == shown


def edit(lines: list[str], hunk: list[str]) -> list[str]:
    """Applies a hunk to the one place of a file that has its old lines; without any, to the end."""
    old = [line[1:] for line in hunk if line[0] in " -"]
    if not old:
        return lines + [line[1:] for line in hunk]
    (place,) = [
        start
        for start in range(len(lines) - len(old) + 1)
        if all(map(is_line, old, lines[start : start + len(old)]))
    ]
    found = lines[place : place + len(old)]
    # An added line takes the rest that the line in its place has.
    rest = next((line[len(shown) - 3 :] for shown, line in zip(old, found, strict=True)
                 if shown.endswith("...")), "")  # fmt: skip
    kept = iter(found)
    new = []
    for line in hunk:
        if line[0] == " ":
            new.append(next(kept))
        elif line[0] == "-":
            next(kept)
        else:
            new.append(line[1:-3] + rest if line.endswith("...") else line[1:])
    return lines[:place] + new + lines[place + len(old) :]


def test_a_hunk_changes_the_lines_that_it_shows():
    lines = ["a = 1 # one", "b = 2", "a = 1 # two", "c = 3"]
    (changed, removed, added) = hunks(
        "@@ x\n b = 2\n-a = 1 ...\n+a = 5 ...\n@@\n-c = 3\n@@\n+d = 4\n+e = 5\n"
    )
    assert edit(lines, changed) == ["a = 1 # one", "b = 2", "a = 5 # two", "c = 3"]
    assert edit(lines, removed) == lines[:3]
    assert edit(lines, added) == [*lines, "d = 4", "e = 5"]
    assert [edited_lines(hunk) for hunk in (changed, removed, added)] == [1, 1, 2]
    with pytest.raises(ValueError, match="too many"):
        edit(lines, ["-a = 1 ..."])


def header(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file))


def renamed_references(given: Path, renamed: Path) -> set[tuple[str, str, str]]:
    """The references of F1DB, with the names that the page gives to their columns."""
    return {
        (path.stem, new, REFERENCES[name])
        for path in renamed.glob("*.csv")
        for name, new in zip(header(given / path.name), header(path), strict=True)
        if name in REFERENCES
    }


def references(schema: dict) -> set[tuple[str, str, str]]:
    return {
        (table["name"], of["columns"], of["to"])
        for table in schema["table"]
        for of in table.get("references", [])
    }


def test_the_transcript_runs_but_for_training(tmp_path, monkeypatch):
    f1db = Path(os.environ.get("HEADWATER_SHARED", ROOT.parent / "shared")) / "data/f1db"
    if not f1db.exists():
        pytest.skip(f"F1DB is not at {f1db}; set HEADWATER_SHARED")
    monkeypatch.chdir(tmp_path)
    Path("f1db").symlink_to(f1db.resolve())
    schema = Path("schema.toml")
    edited = 0
    for block in blocks(PAGE):
        if block.language == "diff":
            lines = schema.read_text().splitlines()
            for hunk in hunks(block.text):
                lines = edit(lines, hunk)
                edited += edited_lines(hunk)
            schema.write_text("\n".join(lines) + "\n")
        elif block.language == "console":
            for command in re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE)[1:]:
                if not command[2:].startswith(TRAINS):
                    run_console(command)
        else:
            run_block(block, {})
    assert 0 < edited <= EDITED_LINES_MAX
    assert f"{edited} lines are edited" in PAGE.read_text()

    draft = tomllib.loads(Path("draft.toml").read_text())
    assert len(draft["table"]) == 31
    assert references(draft) == renamed_references(Path("f1db"), Path("races"))
    assert len(references(draft)) == 103
    final = tomllib.loads(schema.read_text())
    assert references(final) == references(draft)
    configuration = tomllib.loads(Path("train.toml").read_text())
    assert configuration["data"]["tasks"] == ["place"]
    assert configuration["optimizer"]["steps"] > 0
