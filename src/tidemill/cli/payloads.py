"""What is typed or piped in → the arguments of a task."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import IO, Any

import click
import msgspec

from tidemill.errors import InvalidPayload
from tidemill.tasks.definition import TaskDefinition

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


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


def checked(task: TaskDefinition, payload: bytes) -> Arguments:
    """Decoded into the handler's own types: a function that computes a key gets what a program would
    have given it."""
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidPayload(f"task {task.name!r}: the payload is not JSON: {error}; {takes(task)}") from None
    try:
        return task.payload.decode_strictly(payload)
    except InvalidPayload as error:
        raise InvalidPayload(f"task {task.name!r}: {error}; {takes(task)}") from None


def takes(task: TaskDefinition) -> str:
    """`it takes to: str, copies: int`."""
    named = ", ".join(map(_written, parameters(task)))
    return f"it takes {named}" if named else "it takes no arguments"


def _written(parameter: inspect.Parameter) -> str:
    """As the code has it: an annotation that is a string stands without its quotes."""
    if not isinstance(parameter.annotation, str):
        return str(parameter)
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {parameter.annotation}{default}"


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
