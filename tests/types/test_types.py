"""A wrong argument is an editor's error, and a right one is none: what mypy and pyright say.

`# expect: CODE, RULE` stands on the lines that must be errors, with mypy's code and pyright's
rule; no other line may be one. `# reveals: TYPE` says what both must know of a `reveal_type`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.types.checkers import PROGRAMS, Finding, Found, mypy, pyright

CHECKERS = pytest.mark.parametrize(("checker", "place"), [(mypy, 0), (pyright, 1)], ids=["mypy", "pyright"])


def _said(word: str) -> list[Finding]:
    return [
        Finding(path.stem, number, found[1])
        for path in sorted(PROGRAMS.glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := re.search(rf"# {word}: (.*)$", line))
    ]


@CHECKERS
def test_wrong_calls_are_errors_and_right_ones_are_not(checker: Callable[[], Found], place: int) -> None:
    wanted = [Finding(one.program, one.line, one.says.split(", ")[place]) for one in _said("expect")]
    assert wanted
    unexpected, passed = {*checker().errors} - {*wanted}, {*wanted} - {*checker().errors}
    assert (unexpected, passed) == (set(), set())


@CHECKERS
def test_an_editor_knows_what_everything_is(checker: Callable[[], Found], place: int) -> None:
    wanted = _said("reveals")
    assert wanted
    assert {*checker().revealed} ^ {*wanted} == set()
