"""Which fields a task's own types say are secret."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

from tidemill.core.secrecy import Secret
from tidemill.tasks.definition import TaskDefinition


def secret_fields(task: TaskDefinition) -> frozenset[str]:
    """Names of parameters and fields with `Annotated[…, Secret]`, however deep. A name is hidden wherever it
    occurs in a job of the task: better one too many than one too few."""
    found = {name for parameter, hint in task.payload.hints.items() for name in _walk(hint, parameter, set())}
    return frozenset(found | {name for name in _walk(task.result.hint, "", set()) if name})


def hides_result(task: TaskDefinition) -> bool:
    """`-> Annotated[str, Secret]`."""
    return "" in set(_walk(task.result.hint, "", set()))


def _walk(hint: Any, name: str, seen: set[Any]) -> Iterator[str]:
    """`name` is that of the field whose value it is."""
    if typing.get_origin(hint) is typing.Annotated:
        if any(mark is Secret or isinstance(mark, Secret) for mark in hint.__metadata__):
            yield name
        hint = hint.__origin__
    for argument in typing.get_args(hint):
        yield from _walk(argument, name, seen)
    if isinstance(hint, type) and hint not in seen:
        seen.add(hint)
        for field, of_field in _fields(hint).items():
            yield from _walk(of_field, field, seen)


def _fields(kind: type) -> dict[str, Any]:
    """Of a struct, a dataclass, a TypedDict or a model, as they are called in JSON."""
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}
    names = getattr(kind, "__struct_fields__", ())
    written = dict(zip(names, getattr(kind, "__struct_encode_fields__", names), strict=True))
    for field, model in getattr(kind, "model_fields", {}).items():
        written[field] = getattr(model, "serialization_alias", None) or getattr(model, "alias", None) or field
    return {written.get(field, field): hint for field, hint in hints.items()}
