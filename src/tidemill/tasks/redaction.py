"""Finds the secrets in jobs and removes them from all texts that leave the process."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from tidemill.core.redaction import (
    CUT_MARK,
    MIN_SECRET_CHARS,
    RedactionBudget,
    Secret,
    SecretNames,
    hidden_values,
    redact_text,
)
from tidemill.tasks.definition import TaskDefinition

_BUILT_IN_SECRET_FIELDS = {"tidemill:webhook": frozenset({"body"})}
"""A delivery is about another job, whose secrets are unknown here."""
_MAX_EVENT_BYTES = 256 * 1024
"""Events, log lines and webhooks are built on the worker's event loop, so longer texts are cut."""


class TaskSecrets:
    """Finds and hides the secrets in the jobs of all tasks.

    `more`: field names to hide in every job, beside the usual names such as passwords and tokens."""

    def __init__(self, tasks: Mapping[str, TaskDefinition], more: Iterable[str] = ()) -> None:
        self._tasks, self.usual = tasks, SecretNames(more)
        self._names: dict[str, SecretNames] = {}

    def names(self, task: str) -> SecretNames:
        """Returns the names of secret fields in jobs of that task."""
        if (known := self._names.get(task)) is not None:
            return known
        definition = self._tasks.get(task)
        fields = _BUILT_IN_SECRET_FIELDS.get(task, frozenset())
        if definition is None:  # it may be registered later
            return self.usual.with_more(fields) if fields else self.usual
        fields |= find_secret_fields(definition)
        names = self._names[task] = self.usual.with_more(fields) if fields else self.usual
        return names

    def all_names(self) -> list[SecretNames]:
        """Returns the field names that are secret in every job, then for each task the names that are secret
        in its jobs."""
        return [self.usual, *map(self.names, self._tasks)]

    def hides_result(self, task: str) -> bool:
        definition = self._tasks.get(task)
        return definition is not None and is_result_secret(definition)

    def hidden(self, task: str, stored: bytes | None) -> Iterator[str]:
        """Yields the secret values in a payload or a result of a job. `task` is the name of the job's
        task."""
        names = self.names(task)
        if stored is not None and names.may_be_in(stored):
            with suppress(RecursionError):
                yield from hidden_values(_decode(stored), names)

    def text(self, text: str, task: str, payload: bytes | None) -> str:
        """Returns a message or traceback without the secrets of the job's payload."""
        return EventRedactor(self, task, payload).text(text)


class EventRedactor:
    """Removes the secrets of one job from the texts of one event.

    The payload and all texts share one size limit. A text beyond the limit is replaced by a short message. If
    the payload is beyond the limit, every text is replaced."""

    def __init__(self, secrets: TaskSecrets, task: str, payload: bytes | None) -> None:
        self._secrets, self._task, self._payload = secrets, task, payload
        self._names = secrets.names(task)
        self._budget = RedactionBudget(_MAX_EVENT_BYTES)
        self._found: list[str] | None = None

    def text(self, text: str) -> str:
        if self._found is None:
            self._found = self._look_for_secrets()
        if not self._budget.take(len(text), len(self._found)):
            return CUT_MARK
        return redact_text(text, self._names, self._found)

    def _look_for_secrets(self) -> list[str]:
        if self._payload is None or not self._names.may_be_in(self._payload):
            return []
        if not self._budget.take(len(self._payload)):
            self._budget = RedactionBudget(0)
            return []
        return sort_longest_first(self._secrets.hidden(self._task, self._payload))


def sort_longest_first(found: Iterable[str]) -> list[str]:
    """Returns the secret values in the order in which to search for them: the longest first, because one may
    be part of another. Very short values are left out."""
    return sorted({secret for secret in found if len(secret) >= MIN_SECRET_CHARS}, key=len, reverse=True)


def _decode(stored: bytes) -> Any:
    """Decodes JSON; returns text if it is not JSON, as in the payload of another program."""
    try:
        return msgspec.json.decode(stored)
    except msgspec.DecodeError:
        return stored.decode(errors="replace")


def find_secret_fields(task: TaskDefinition) -> frozenset[str]:
    """Returns the names of all parameters and fields with `Annotated[…, Secret]`, at any depth.

    A name is hidden wherever it occurs in a job of the task, even in another object."""
    found = {
        name
        for parameter, hint in task.payload.hints.items()
        for name in _walk_annotation(hint, parameter, set())
    }
    return frozenset(found | {name for name in _walk_annotation(task.result.hint, "", set()) if name})


def is_result_secret(task: TaskDefinition) -> bool:
    """True if the whole result is secret, as in `-> Annotated[str, Secret]`."""
    return "" in set(_walk_annotation(task.result.hint, "", set()))


def _walk_annotation(hint: Any, name: str, seen: set[Any]) -> Iterator[str]:
    """Yields the names of the secret fields inside the annotation `hint`. `name` is the field or parameter
    that has the annotation. `seen` has the classes that were already visited."""
    if typing.get_origin(hint) is typing.Annotated:
        if any(mark is Secret or isinstance(mark, Secret) for mark in hint.__metadata__):
            yield name
        hint = hint.__origin__
    for argument in typing.get_args(hint):
        yield from _walk_annotation(argument, name, seen)
    if isinstance(hint, type) and hint not in seen:
        seen.add(hint)
        for field, of_field in _field_annotations(hint).items():
            yield from _walk_annotation(of_field, field, seen)


def _field_annotations(kind: type) -> dict[str, Any]:
    """Returns the annotations of the fields of a struct, dataclass, TypedDict or model, by JSON name."""
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}
    names = getattr(kind, "__struct_fields__", ())
    written = dict(zip(names, getattr(kind, "__struct_encode_fields__", names), strict=True))
    for field, model in getattr(kind, "model_fields", {}).items():
        written[field] = getattr(model, "serialization_alias", None) or getattr(model, "alias", None) or field
    return {written.get(field, field): hint for field, hint in hints.items()}
