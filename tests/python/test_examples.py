"""The programs of mpi-examples, as their page says to run them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "mpi-examples"
PROGRAMS = sorted(
    str(path.relative_to(EXAMPLES))
    for path in EXAMPLES.rglob("*.*")
    # job.py is shared by the programs.
    if path.suffix in {".py", ".sh"} and path.name != "job.py"
)
# The optional libraries that a program needs.
NEEDED = {
    "engines/beam_combine.py": ["apache_beam"],
    "engines/dask_tree.py": ["dask"],
    "engines/ray_tasks.py": ["ray", "pandas"],
    "engines/spark_tree_reduce.py": ["pyspark"],
    "moments.sh": ["pyarrow"],
    "train.py": ["jax"],
}
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


def finished(command: list[str], seconds: int) -> tuple[int, str]:
    """Runs a command to its end; after a timeout, ends it with its children and fails."""
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
        pytest.fail(f"the program did not end within {seconds} s: {output}")
    return run.returncode, output


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_passes_its_own_checks(program):
    for needed in NEEDED.get(program, []):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed; make test-engines installs it")
    if "spark" in program and shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    runner = sys.executable if program.endswith(".py") else "bash"
    status, output = finished([runner, str(EXAMPLES / program)], 180)
    assert status == 0, output
    last_line = output.splitlines()[-1]
    if "skipped" in last_line:
        pytest.skip(last_line)
    assert last_line.startswith(Path(program).stem + ": "), output


def test_the_page_has_a_section_for_each_program():
    titles = [line for line in (EXAMPLES / "README.md").read_text().splitlines() if "## " in line]
    assert sorted(title.split()[1].rstrip(":") for title in titles) == PROGRAMS
