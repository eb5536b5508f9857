"""A wrong argument is a type error, and a right one is none, in mypy and pyright.

`# expect: CODE, RULE` marks the lines that must be errors, with mypy's code and pyright's rule; no other
line may be an error. `# reveals: TYPE` is the type that both must show for a `reveal_type`."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.types.checkers import PROGRAMS, CheckerOutput, Finding, mypy, pyright

CHECKERS = pytest.mark.parametrize(
    ("checker", "position"), [(mypy, 0), (pyright, 1)], ids=["mypy", "pyright"]
)


def _expected(word: str) -> list[Finding]:
    return [
        Finding(path.stem, number, found[1])
        for path in sorted(PROGRAMS.glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := re.search(rf"# {word}: (.*)$", line))
    ]


@CHECKERS
def test_wrong_calls_are_errors_and_right_ones_are_not(
    checker: Callable[[], CheckerOutput], position: int
) -> None:
    expected = [Finding(one.program, one.line, one.says.split(", ")[position]) for one in _expected("expect")]
    assert expected
    unexpected, passed = {*checker().errors} - {*expected}, {*expected} - {*checker().errors}
    assert (unexpected, passed) == (set(), set())


@CHECKERS
def test_both_checkers_reveal_the_same_types(checker: Callable[[], CheckerOutput], position: int) -> None:
    expected = _expected("reveals")
    assert expected
    assert {*checker().revealed} ^ {*expected} == set()
