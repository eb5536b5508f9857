"""What is typed or piped in → the arguments of a task."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import IO, Any

import click
import msgspec

from tidemill.errors import InvalidPayload
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.written import Arguments, checked, takes


def from_words(task: TaskDefinition, words: Sequence[str]) -> Arguments:
    """`name=value …`: values are JSON where they parse, else text."""
    hints = task.payload.hints
    payload: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise click.UsageError(f"{word!r} is not of the form name=value; {takes(task)}")
        if name in payload:
            raise click.UsageError(f"{name!r} is given twice")
        payload[name] = _value(value, hints.get(name, Any))
    return checked(task, msgspec.json.encode(payload))


def from_lines(task: TaskDefinition, lines: IO[bytes]) -> Iterator[tuple[int, Arguments]]:
    """Each with its number; empty lines are left out. A bad one is named by its number."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, checked(task, line)
        except InvalidPayload as error:
            raise InvalidPayload(f"line {number}: {error}") from None


def parameters(task: TaskDefinition) -> list[inspect.Parameter]:
    """Those a job gives; the context is not among them. Of a batch task it is one item."""
    return list(task.payload.parameters)


def _value(text: str, wanted: Any) -> Any:
    """As it was typed where it is JSON: 1.10 stays 1.10. `phone=123` for a parameter that wants text is the
    text 123, not a mistake."""
    written = msgspec.Raw(text.encode(errors="surrogateescape"))
    try:
        value = msgspec.json.decode(written)
    except (msgspec.DecodeError, UnicodeError):
        return text
    is_plain = value is None or isinstance(value, bool | int | float)
    as_text = is_plain and not _fits(written, wanted) and _fits(msgspec.json.encode(text), wanted)
    return text if as_text else written


def _fits(value: bytes | msgspec.Raw, wanted: Any) -> bool:
    try:
        msgspec.json.decode(value, type=wanted)
    except msgspec.DecodeError:
        return False
    except TypeError:  # a type that is not msgspec's own: the payload's codec decides
        return True
    return True
