"""The notebooks of docs/notebooks run, and print what their pages show.

A notebook is kept as text, in the percent format of Jupytext. A text cell that begins with a block
`text` shows what the cell of code before it prints; `...` stands for anything.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_readme import ENVIRONMENT, LIMIT_SECONDS, ROOT, matches, run_cell

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.py"))


def cells(notebook: Path) -> list[tuple[bool, str]]:
    """Returns whether each cell is a text, and what it holds."""
    before, *parts = re.split(r"^# %%(.*)\n", notebook.read_text(), flags=re.MULTILINE)
    assert before == "", f"{notebook}: expected a cell at the beginning, found {before!r}"
    return [
        (True, re.sub(r"^# ?", "", body, flags=re.MULTILINE))
        if kind == " [markdown]"
        else (False, body)
        for kind, body in zip(parts[::2], parts[1::2], strict=True)
    ]


def run_notebook(notebook: Path) -> None:
    """Runs a notebook in the current folder."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for is_text, body in cells(notebook):
        if is_text:
            shown = re.match(r"```text\n(.*?)^```", body, re.DOTALL | re.MULTILINE)
            expected = shown[1] if shown else ""
            assert matches(expected, printed), f"expected:\n{expected}\nfound:\n{printed}"
            printed = ""
        else:
            assert printed == "", f"no text shows what is printed:\n{printed}"
            with contextlib.redirect_stdout(io.StringIO()) as stdout:
                run_cell(body, namespace)
            printed = stdout.getvalue()
    assert printed == "", f"no text shows what is printed:\n{printed}"


@pytest.mark.parametrize("name", [notebook.name for notebook in NOTEBOOKS])
def test_a_notebook_prints_what_its_page_shows(name, tmp_path):
    # A process of its own: where JAX is loaded, other tests may not fork.
    ended = subprocess.run(
        [sys.executable, __file__, name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env=ENVIRONMENT,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


if __name__ == "__main__":
    run_notebook(ROOT / "docs/notebooks" / sys.argv[1])
