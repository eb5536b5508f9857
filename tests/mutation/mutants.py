"""The mutants of a source file: every small change that a test should detect.

A mutant replaces the text of one node and keeps every other line, so line numbers stay valid."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
EXTREMES = {"min": "max", "max": "min"}
# Text for people and tools: only documentation tests read some of it, and it does not affect behaviour.
UNTESTED_FUNCTIONS = {"__repr__", "__str__", "__rich__"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. `start` and `end` are byte offsets; a test covers the change if it runs `lines`."""

    path: str
    line: int
    lines: tuple[int, int]
    start: int
    end: int
    text: str
    original: str
    mutated: str
    at_import: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.original} → {self.mutated}"

    def source(self, root: Path) -> bytes:
        """Returns the whole file with this change."""
        source = (root / self.path).read_bytes()
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Returns every mutant of one file, in the order of its lines."""
    finder = _Finder(path, (root / path).read_bytes())
    finder.visit(finder.tree)
    return finder.found


def choose(mutants: Sequence[Mutant], seed: int, count: int) -> list[Mutant]:
    """Returns a random choice, with a second mutant of a line only after every line has one."""
    shuffled = list(mutants)
    random.Random(seed).shuffle(shuffled)
    seen: Counter[tuple[str, int]] = Counter()
    ranks = []
    for mutant in shuffled:
        seen[mutant.path, mutant.line] += 1
        ranks.append(seen[mutant.path, mutant.line])
    order = sorted(range(len(shuffled)), key=ranks.__getitem__)
    return [shuffled[index] for index in order[:count]]


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.tree = ast.parse(source)
        self.found: list[Mutant] = []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._statement: ast.stmt = ast.Pass()
        self._functions = 0

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr | ast.stmt | ast.comprehension):
            if isinstance(node, ast.stmt):
                self._statement = node
            for changed, text in changes(node):
                self._add(changed, text)
        self._descend(node)

    def _descend(self, node: ast.AST) -> None:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Raise() | ast.JoinedStr():
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._visit_function(node)
            case ast.ClassDef():
                self._visit_all(node.body)
            case ast.AnnAssign():
                self._visit_all([node.value] if node.value else [])
            case ast.If() if ast.unparse(node.test) == "TYPE_CHECKING":
                return
            case ast.Expr(value=ast.Constant()):
                return
            case _:
                self._visit_all(list(ast.iter_child_nodes(node)))

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in UNTESTED_FUNCTIONS:
            return
        self._visit_all([*node.args.defaults, *(one for one in node.args.kw_defaults if one)])
        self._functions += 1
        self._visit_all(node.body)
        self._functions -= 1

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        statement = self._statement
        for node in nodes:
            self.visit(node)
            self._statement = statement

    def _add(self, node: ast.expr | ast.stmt, text: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        if node.lineno == node.end_lineno:
            whole = self._starts[node.lineno - 1], self._starts[node.lineno]
        else:
            whole = start, end
        original = self.source[whole[0] : whole[1]].decode()
        mutated = (self.source[whole[0] : start] + text.encode() + self.source[end : whole[1]]).decode()
        self.found.append(
            Mutant(
                self.path,
                node.lineno,
                _lines_of(self._statement, node),
                start,
                end,
                text,
                " ".join(original.split()),
                " ".join(mutated.split()),
                at_import=not self._functions,
            )
        )


def _lines_of(statement: ast.stmt, node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Returns the lines that run the node; of a compound statement, only those of its expression."""
    inside = statement if not hasattr(statement, "body") else node
    return inside.lineno, inside.end_lineno or inside.lineno


def changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yields nodes and their replacements, in brackets where necessary."""
    match node:
        case ast.If() | ast.IfExp():
            yield node.test, f"(not {_text(node.test)})"
        case ast.comprehension():
            yield from ((condition, "True") for condition in node.ifs)
        case ast.Call():
            yield from _call(node)
        case ast.expr():
            yield from _expression(node)
    if isinstance(node, ast.stmt):
        yield from _dropped(node)


def _expression(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                other = COMPARISONS[type(operator)]()
                ops = [*node.ops[:index], other, *node.ops[index + 1 :]]
                yield node, _text(ast.Compare(node.left, ops, node.comparators))
        case ast.BoolOp():
            yield from _boolean(node)
        case ast.UnaryOp(op=ast.Not()):
            yield node, _text(node.operand)
        case ast.BinOp() if type(node.op) in ARITHMETIC and not _is_text(node):
            yield node, _text(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))
        case ast.Constant():
            yield from _constant(node)


def _boolean(node: ast.BoolOp) -> Iterator[tuple[ast.expr, str]]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield node, _text(ast.BoolOp(other, node.values))
    for index in range(len(node.values)):
        rest = [*node.values[:index], *node.values[index + 1 :]]
        yield node, _text(ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])


def _constant(node: ast.Constant) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node.value, int | float):
        yield node, repr(node.value + 1)


def _call(node: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    for keyword in node.keywords:
        if keyword.arg:
            rest = [one for one in node.keywords if one is not keyword]
            yield node, _text(ast.Call(node.func, node.args, rest))
    if not isinstance(node.func, ast.Name):
        return
    if node.func.id in EXTREMES:
        yield node.func, EXTREMES[node.func.id]
        if len(node.args) > 1:
            for index in range(len(node.args)):
                rest_args = [*node.args[:index], *node.args[index + 1 :]]
                yield (
                    node,
                    _text(
                        ast.Call(node.func, rest_args, node.keywords) if len(rest_args) > 1 else rest_args[0]
                    ),
                )
    if node.func.id == "abs":
        yield node, _text(node.args[0])


def _dropped(node: ast.stmt) -> Iterator[tuple[ast.stmt, str]]:
    match node:
        case (
            ast.Expr(value=ast.Call() | ast.Await())
            | ast.Delete()
            | ast.Raise()
            | ast.Continue()
            | ast.Break()
        ):
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield node, "pass"
        case ast.If(body=[ast.Return() as only]):
            yield only, "pass"


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _text(node: ast.expr) -> str:
    """Returns the node's source in brackets: neighbours may bind more tightly than the new operator."""
    return f"({ast.unparse(ast.fix_missing_locations(node))})"
