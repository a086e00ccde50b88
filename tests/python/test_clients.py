"""The programs of examples/clients: each is stopped, goes on, and has the losses of a whole run."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headwater

CLIENTS = Path(__file__).parents[2] / "examples/clients"


@pytest.fixture(scope="module")
def churn(tmp_path_factory):
    """A store of the demo shop."""
    folder = tmp_path_factory.mktemp("clients")
    subprocess.run([sys.executable, "-m", "headwater", "demo-data", folder / "data"], check=True)
    headwater.prepare(folder / "data", folder / "data/schema.toml", folder / "db", dimension=32)
    return folder / "db"


def losses(program, store, folder, until):
    """Returns the losses that a program prints up to a step or epoch, by its number."""
    folder.mkdir(exist_ok=True)
    finished = subprocess.run(
        [sys.executable, CLIENTS / program, store, folder, str(until)],
        capture_output=True, text=True, timeout=600,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return dict(re.findall(r"^(?:step|epoch) (\d+) loss (\S+)$", finished.stdout, re.MULTILINE))


# The libraries of each, and up to where it is trained at first, and then.
@pytest.mark.parametrize(
    ("program", "libraries", "first", "last"),
    [
        ("torch_loop.py", ["torch", "torchdata"], 3, 8),
        ("keras_fit.py", ["keras", "jax"], 2, 4),
        ("hugging_face.py", ["torch", "transformers", "accelerate"], 3, 8),
    ],
)
def test_a_client_goes_on_with_the_losses_of_a_whole_run(
    program, libraries, first, last, churn, tmp_path
):
    for library in libraries:
        # Not imported: Keras wants its backend set before.
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    whole = losses(program, churn, tmp_path / "whole", last)
    assert len(whole) == last
    begun = losses(program, churn, tmp_path / "stopped", first)
    continued = losses(program, churn, tmp_path / "stopped", last)
    assert len(begun) == first
    assert not begun.keys() & continued.keys()
    assert begun | continued == whole
    assert len(set(whole.values())) > 1
