"""JSON that a person or another program wrote → the arguments of a task."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from tidemill.errors import InvalidPayload
from tidemill.tasks.definition import TaskDefinition

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def checked(task: TaskDefinition, payload: bytes) -> Arguments:
    """Decoded into the handler's own types: a function that computes a key gets what a program would
    have given it."""
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidPayload(f"task {task.name!r}: the payload is not JSON: {error}; {takes(task)}") from None
    except RecursionError:
        raise InvalidPayload(f"task {task.name!r}: the payload is nested too deeply; flatten it") from None
    try:
        return task.payload.decode_strictly(payload)
    except InvalidPayload as error:
        raise InvalidPayload(f"task {task.name!r}: {error}; {takes(task)}") from None


def takes(task: TaskDefinition) -> str:
    """`it takes to: str, copies: int`."""
    named = ", ".join(map(_written, task.payload.parameters))
    return f"it takes {named}" if named else "it takes no arguments"


def _written(parameter: inspect.Parameter) -> str:
    """As the code has it: an annotation that is a string stands without its quotes."""
    if not isinstance(parameter.annotation, str):
        return str(parameter)
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {parameter.annotation}{default}"
