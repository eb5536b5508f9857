"""Finds the prose in the source: docstrings, comments, help, log lines, labels, SQL and Lua comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Keyword arguments and class variables whose string a person reads.
READ_BY_PEOPLE = {"help", "summary", "sentence", "short_help", "epilog", "description", "label", "title"}
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|!)")


class Sentence(NamedTuple):
    """One line of prose and where it stands."""

    path: str
    line: int
    text: str


def python_prose(path: str, text: str) -> Iterator[Sentence]:
    """Yields docstrings, comments, and strings that a person reads (help, log lines, labels)."""
    for node in ast.walk(ast.parse(text)):
        yield from _docstrings(path, node)
        yield from _labels(path, node)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
            yield Sentence(path, token.start[0], token.string.lstrip("# "))


def _docstrings(path: str, node: ast.AST) -> Iterator[Sentence]:
    body = getattr(node, "body", None)
    for one in body if isinstance(body, list) else ():
        value = one.value if isinstance(one, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            for offset, line in enumerate(value.value.splitlines()):
                yield Sentence(path, one.lineno + offset, line.strip())


def _labels(path: str, node: ast.AST) -> Iterator[Sentence]:
    if isinstance(node, ast.keyword):
        name, value = node.arg, node.value
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        name, value = node.target.id, node.value
    else:
        return
    if name in READ_BY_PEOPLE:
        yield from _constant(path, value)


def _constant(path: str, value: ast.expr) -> Iterator[Sentence]:
    for one in ast.walk(value):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield Sentence(path, one.lineno, one.value)


def comment_prose(path: str, text: str) -> Iterator[Sentence]:
    """Yields the comments of a .sql or .lua file."""
    for number, line in enumerate(text.splitlines(), 1):
        _, mark, comment = line.partition("--")
        if mark:
            yield Sentence(path, number, comment.strip("- "))


def label_prose(path: str, text: str) -> Iterator[Sentence]:
    """Yields the labels of a locale file (`key = "text"`)."""
    for number, line in enumerate(text.splitlines(), 1):
        label = re.match(r"[\w.\"-]+\s*=\s*\"(.*)\"\s*(#.*)?$", line)
        if label is not None:
            yield Sentence(path, number, label[1])


def prose(root: Path, paths: list[str]) -> Iterator[Sentence]:
    """Yields every sentence in the given files, by the kind of the file."""
    readers = {".py": python_prose, ".sql": comment_prose, ".lua": comment_prose, ".toml": label_prose}
    for path in paths:
        reader = readers.get(Path(path).suffix)
        if reader is not None:
            yield from reader(path, (root / path).read_text(encoding="utf-8"))
