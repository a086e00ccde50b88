"""What a release needs to agree on, and what the site's pages of the API have to name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import headwater

ROOT = Path(__file__).parents[2]


def toml(name: str) -> dict:
    return tomllib.loads((ROOT / name).read_text())


def test_one_version_stands_in_every_file():
    version = toml("Cargo.toml")["workspace"]["package"]["version"]
    burn = toml("burn/Cargo.toml")
    assert burn["package"]["version"] == version
    assert f"{version}.".startswith(f"{burn['dependencies']['headwater']['version']}.")
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited[1] == version
    for name in ("Cargo.lock", "burn/Cargo.lock", "fuzz/Cargo.lock"):
        found = {of["name"]: of["version"] for of in toml(name)["package"]}
        assert {v for n, v in found.items() if n.startswith("headwater")} - {"0.0.0"} == {version}


def test_the_changelog_has_a_section_of_the_version_with_its_date():
    version = re.escape(toml("Cargo.toml")["workspace"]["package"]["version"])
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {version} \(\d{{4}}-\d\d-\d\d\)$", changes, re.MULTILINE)


@pytest.mark.parametrize(
    "name", [n for n in headwater.__all__ if n not in {"__version__", "reduce"}]
)
def test_the_page_of_the_api_has_each_public_name(name):
    page = (ROOT / "docs/api/headwater.md").read_text()
    assert re.search(rf"^\.\. auto\w+:: {name}$", page, re.MULTILINE)
