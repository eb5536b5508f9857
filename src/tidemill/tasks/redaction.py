"""The secrets of a task's jobs: which fields hold them, and texts without them.

Everything that leaves the process goes by here: the API and the pages, webhooks, events and log lines, spans,
and what the commands print.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from tidemill.core.secrecy import CUT, LEAST, Budget, Names, Secret, hidden_in, redacted_text
from tidemill.tasks.definition import TaskDefinition

_OWN_FIELDS = {"tidemill:webhook": frozenset({"body"})}
"""A delivery tells of another job. The secrets of that job are not known here."""
_EVENT_BYTES = 256 * 1024
"""An event, a log line and a webhook are made on the worker's event loop: what is longer is cut."""


class TaskSecrets:
    """`more` are names of fields to hide beside the usual ones, in every job."""

    def __init__(self, tasks: Mapping[str, TaskDefinition], more: Iterable[str] = ()) -> None:
        self._tasks, self.usual = tasks, Names(more)
        self._names: dict[str, Names] = {}

    def names(self, task: str) -> Names:
        """The names of secret fields in jobs of that task."""
        if (known := self._names.get(task)) is not None:
            return known
        definition = self._tasks.get(task)
        fields = _OWN_FIELDS.get(task, frozenset())
        if definition is None:  # it may be registered later
            return self.usual.with_more(fields) if fields else self.usual
        fields |= secret_fields(definition)
        names = self._names[task] = self.usual.with_more(fields) if fields else self.usual
        return names

    def all_names(self) -> list[Names]:
        """The names that are secret in every job, then the names of each task."""
        return [self.usual, *map(self.names, self._tasks)]

    def hides_result(self, task: str) -> bool:
        definition = self._tasks.get(task)
        return definition is not None and hides_result(definition)

    def hidden(self, task: str, stored: bytes | None) -> Iterator[str]:
        """The values that are hidden in a payload or a result."""
        names = self.names(task)
        if stored is not None and names.may_be_in(stored):
            with suppress(RecursionError):
                yield from hidden_in(_decoded(stored), names)

    def text(self, text: str, task: str, payload: bytes | None) -> str:
        """A message or a traceback of a job, without the secrets of its payload."""
        return EventTexts(self, task, payload).text(text)


class EventTexts:
    """Redacts the texts of one event about a job. Looks for the secrets of the payload once, before the first
    text. The payload, if it may have secrets, and the texts share one budget."""

    def __init__(self, secrets: TaskSecrets, task: str, payload: bytes | None) -> None:
        self._secrets, self._task, self._payload = secrets, task, payload
        self._names = secrets.names(task)
        self._budget = Budget(_EVENT_BYTES)
        self._found: list[str] | None = None

    def text(self, text: str) -> str:
        if self._found is None:
            self._found = self._look_for_secrets()
        if not self._budget.take(len(text), len(self._found)):
            return CUT
        return redacted_text(text, self._names, self._found)

    def _look_for_secrets(self) -> list[str]:
        if self._payload is None or not self._names.may_be_in(self._payload):
            return []
        if not self._budget.take(len(self._payload)):
            self._budget = Budget(0)
            return []
        return longest_first(self._secrets.hidden(self._task, self._payload))


def longest_first(found: Iterable[str]) -> list[str]:
    """The values to look for in texts. One may be a part of another."""
    return sorted({secret for secret in found if len(secret) >= LEAST}, key=len, reverse=True)


def _decoded(stored: bytes) -> Any:
    """As text when it is not JSON, as the payload of a foreign producer may be."""
    try:
        return msgspec.json.decode(stored)
    except msgspec.DecodeError:
        return stored.decode(errors="replace")


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
