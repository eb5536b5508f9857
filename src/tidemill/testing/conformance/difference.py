"""Where two answers differ, in a few lines a person can read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

_SHOWN = 12


def difference(answer: object, expected: object) -> str:
    found = list(_paths("answer", _plain(answer), _plain(expected)))
    return "\n".join(found[:_SHOWN] + ["…"] * (len(found) > _SHOWN))


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def _paths(at: str, answer: Any, expected: Any) -> Iterator[str]:
    if isinstance(answer, dict) and isinstance(expected, dict):
        for key in sorted(answer.keys() | expected.keys()):
            yield from _paths(f"{at}.{key}", answer.get(key), expected.get(key))
    elif isinstance(answer, list | tuple) and isinstance(expected, list | tuple):
        if len(answer) != len(expected):
            yield f"{at} has {len(answer)} items instead of {len(expected)}"
        for index, pair in enumerate(zip(answer, expected, strict=False)):
            yield from _paths(f"{at}[{index}]", *pair)
    elif answer != expected:
        yield f"{at} is {answer!r} instead of {expected!r}"
