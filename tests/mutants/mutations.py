"""Small changes of a Python file, one at a time, that a test should notice.

Changed are operators, comparisons, constants, conditions and the order of arguments; not texts,
annotations, and what only makes the message of an error.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.MatMult: ("@", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}

# Functions of which the order of the arguments does not matter.
_SYMMETRIC = (
    "apply_updates", "clip", "compare_digest", "max", "maximum", "min", "minimum", "swapaxes"
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A changed file; `name` stays the same when other lines of the file change."""

    name: str
    line: int
    text: str


def mutants(source: str) -> list[Mutant]:
    """Returns all mutants of a file, in the order of their places."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    found: dict[str, Mutant] = {}
    for start, end, new in sorted(set(finder.changes)):
        made = _mutant(source, finder.data, start, end, new)
        # The same change of an equal line elsewhere in the function needs no test of its own.
        found.setdefault(made.name, made)
    return list(found.values())


def _mutant(source: str, data: bytes, start: int, end: int, new: bytes) -> Mutant:
    changed = data[:start] + new + data[end:]
    line = data[:start].count(b"\n") + 1
    first, last = data.rfind(b"\n", 0, start) + 1, data.find(b"\n", end)
    before = b" ".join(data[first:last].split())
    after = b" ".join((data[first:start] + new + data[end:last]).split())
    function = _function_at(source, line)
    return Mutant(f"{function}: {before.decode()} -> {after.decode()}", line, changed.decode())


def _function_at(source: str, line: int) -> str:
    """Returns the name of the innermost function or class around a line."""
    name = "module"
    for node in ast.walk(ast.parse(source)):
        is_scope = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if is_scope and node.lineno <= line <= (node.end_lineno or 0):
            name = node.name
    return name


class _Finder(ast.NodeVisitor):
    """Collects changes as (start, end, new bytes)."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        starts = [0, *(match.end() for match in re.finditer(b"\n", self.data))]
        self._line_starts = starts
        self.changes: list[tuple[int, int, bytes]] = []

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._line_starts[node.lineno - 1] + node.col_offset,
            self._line_starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replaces the operator between two expressions."""
        start, end = self._span(left)[1], self._span(right)[0]
        pattern = re.escape(old).replace(r"\ ", r"\s+").encode()
        match = re.search(pattern, self.data[start:end])
        if match:
            self.changes.append((start + match.start(), start + match.end(), new.encode()))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_text = isinstance(node.left, ast.Constant | ast.JoinedStr) and not isinstance(
            getattr(node.left, "value", None), int | float
        )
        if type(node.op) in _OPERATORS and not is_text:
            self._between(node.left, node.right, *_OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in _OPERATORS:
            old, new = _OPERATORS[type(node.op)]
            self._between(node.target, node.value, f"{old}=", f"{new}=")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            self._between(left, right, *_COMPARISONS[type(op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            start, _ = self._span(node)
            length = len("not ") if isinstance(node.op, ast.Not) else len("-")
            self.changes.append((start, start + length, b""))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            # Imports for annotations.
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            start, end = self._span(test)
            self.changes.append((start, end, b"not (" + self.data[start:end] + b")"))

    def visit_Constant(self, node: ast.Constant) -> None:
        start, end = self._span(node)
        value = node.value
        if isinstance(value, bool):
            self.changes.append((start, end, str(not value).encode()))
        elif isinstance(value, int):
            self.changes.append((start, end, str(value + 1).encode()))
        elif isinstance(value, float):
            self.changes.append((start, end, repr(value * 2 if value else 1.0).encode()))

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        is_plain = not any(isinstance(of, ast.Starred) for of in node.args[:2])
        if len(node.args) >= 2 and is_plain and name not in _SYMMETRIC:
            first, second = (self._span(of) for of in node.args[:2])
            one, two = self.data[slice(*first)], self.data[slice(*second)]
            if one != two:
                between = self.data[first[1] : second[0]]
                self.changes.append((first[0], second[1], two + between + one))
        self.generic_visit(node)

    # What is left as it is: annotations, decorators, errors and their messages, texts.

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._visit_all(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Import(self, node: ast.Import) -> None:
        pass

    def _visit_all(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)
