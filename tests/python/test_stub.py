"""The stub agrees with the compiled module."""

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from headwater import _headwater

STUB = ast.parse((Path(headwater.__file__).parent / "_headwater.pyi").read_text())
CLASSES = [node for node in STUB.body if isinstance(node, ast.ClassDef)]
EXCEPTIONS = [
    (node.name, node)
    for node in CLASSES
    if issubclass(getattr(_headwater, node.name, object), Exception)
]


def test_the_stub_has_the_names_and_signatures_of_the_module(tmp_path):
    # PyO3 writes `__all__`, which nobody reads: the package names what it imports.
    (tmp_path / "allowed").write_text("headwater._headwater.__all__\n")
    words = ["mypy.stubtest", "--concise", "--allowlist", "allowed", "headwater._headwater"]
    checked = subprocess.run(
        [sys.executable, "-m", *words],
        env=os.environ | {"PYTHONPATH": str(Path(headwater.__file__).parents[1])},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_public_name_is_in_the_stub_or_written_in_python():
    names = {node.name for node in STUB.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    written_in_python = {"Events", "Page", "Sampler", "Table", "Task", "reduce", "__version__"}
    assert set(headwater.__all__) - written_in_python <= names
    assert headwater.__all__ == sorted(headwater.__all__)


@pytest.mark.parametrize(("name", "node"), EXCEPTIONS, ids=[name for name, _ in EXCEPTIONS])
def test_the_stub_has_the_bases_and_texts_of_the_exceptions(name, node):
    exception = getattr(_headwater, name)
    assert [ast.unparse(base) for base in node.bases] == [
        base.__name__ for base in exception.__bases__
    ]
    assert ast.get_docstring(node) == exception.__doc__


def test_the_defaults_of_the_sampler_are_those_of_the_core():
    parameters = inspect.signature(headwater.Sampler).parameters
    for name, default in _headwater.sampler_defaults().items():
        # The walk breadth first has no child width.
        expected = None if name == "bfs_child_width" else default
        assert parameters[name].default == expected, name


def test_only_the_first_arguments_of_the_sampler_are_positional():
    parameters = inspect.signature(headwater.Sampler).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional[-1] == "seed"
    assert {p.kind for p in parameters} == {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }
