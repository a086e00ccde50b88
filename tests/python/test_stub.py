"""The stub agrees with the compiled module."""

import ast
import inspect
from pathlib import Path

import pytest

import headwater
from headwater import _headwater

STUB = ast.parse((Path(headwater.__file__).parent / "_headwater.pyi").read_text())
# Classes that exist only in the stub, for its types.
TYPES = {
    *("ArrowTable", "AuditReport", "AuditedTask", "Leak", "PairsView", "Report", "RowView"),
    "StageReport",
}


def stub_names(body):
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in TYPES:
            yield node.name, node
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id, node


def public(value):
    return {name for name in vars(value) if not name.startswith("_")}


def names_of(cases):
    """The names of test cases: an object's address would differ from process to process."""
    return [name for name, *_ in cases]


def test_the_stub_has_the_names_of_the_module():
    names = {name for name, _ in stub_names(STUB.body)}
    assert names == public(_headwater) | {"__version__"}
    # Names that are written in Python need no stub.
    written_in_python = {"Events", "Page", "Sampler", "Table", "Task", "reduce"}
    assert set(headwater.__all__) - written_in_python <= names
    assert headwater.__all__ == sorted(headwater.__all__)


def stub_arguments(node):
    """The arguments as `inspect` prints them, without their types."""
    arguments = node.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    return f"({ast.unparse(arguments)})"


FUNCTIONS = [
    (name, node, getattr(_headwater, name))
    for name, node in stub_names(STUB.body)
    if isinstance(node, ast.FunctionDef)
]
CLASSES = [
    (name, node, getattr(_headwater, name))
    for name, node in stub_names(STUB.body)
    if isinstance(node, ast.ClassDef)
]
METHODS = [
    (f"{class_name}.{name}", node, inspect.getattr_static(value, name))
    for class_name, class_node, value in CLASSES
    for name, node in stub_names(class_node.body)
]


@pytest.mark.parametrize(("name", "node", "value"), CLASSES, ids=names_of(CLASSES))
def test_the_stub_has_the_classes_of_the_module(name, node, value):
    if not issubclass(value, Exception):
        names = {name for name, _ in stub_names(node.body) if not name.startswith("__")}
        assert names == public(value)
    else:
        bases = [ast.unparse(base) for base in node.bases]
        assert bases == [base.__name__ for base in value.__bases__]
        assert ast.get_docstring(node) == value.__doc__


@pytest.mark.parametrize(
    ("name", "node", "value"), FUNCTIONS + METHODS, ids=names_of(FUNCTIONS + METHODS)
)
def test_the_stub_has_the_signatures_of_the_module(name, node, value):
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if "property" in decorators:
        assert inspect.isgetsetdescriptor(value)
        return
    if isinstance(value, staticmethod):
        assert "staticmethod" in decorators
        value = value.__func__
    if name.endswith(".__new__"):
        return
    signature = str(inspect.signature(value)).replace("$self", "self").replace(", /", "")
    assert signature == stub_arguments(node)


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
