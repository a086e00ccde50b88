"""The programs of mpi-examples, as their page says to run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "mpi-examples"
PROGRAMS = sorted(
    path.name
    for path in EXAMPLES.iterdir()
    # What the others share is none.
    if path.suffix in {".py", ".sh"} and path.name != "job.py"
)
# The libraries that are not there without the extras.
NEEDED = {"moments.sh": "pyarrow", "train.py": "jax"}
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


def finished(command: list[str], seconds: int) -> tuple[int, str]:
    """Runs to the end, or is asked to end with all that it started."""
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    try:
        output, _ = run.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGTERM)
        output, _ = run.communicate(timeout=60)
        pytest.fail(f"it did not end in {seconds} s: {output}")
    return run.returncode, output


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_comes_to_what_it_asserts(program):
    needed = NEEDED.get(program)
    if needed and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    runner = sys.executable if program.endswith(".py") else "bash"
    status, output = finished([runner, str(EXAMPLES / program)], 180)
    assert status == 0, output
    said = output.splitlines()[-1]
    if "skipped" in said:
        pytest.skip(said)
    assert said.startswith(program.split(".")[0] + ": "), output


def test_the_page_has_a_section_for_each():
    titles = [line for line in (EXAMPLES / "README.md").read_text().splitlines() if "## " in line]
    assert sorted(title.split()[1].rstrip(":") for title in titles) == PROGRAMS
