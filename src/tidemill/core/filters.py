"""Which jobs a person means: the filter behind find, and behind every bulk change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from tidemill.core.job import Job
from tidemill.core.names import is_storable
from tidemill.core.states import State


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Every field that is set must match.

    id_prefix: what the id begins with, for ids that people shorten.
    since, until: wall times, `since` included and `until` not; `time` says of what.
    text: occurs in the task, key, tags, payload, note, reason or error; A to Z match in either case.
        A payload's strings are searched as they read, however they are escaped.
    fields: pairs of a path into the payload and the value there, as text: `("feed.host", "a.example")`.
        A path goes through the members of objects and through every element of an array.
    """

    ids: tuple[str, ...] | None = None
    id_prefix: str | None = None
    queue: str | None = None
    states: tuple[State, ...] | None = None
    task: str | None = None
    key: str | None = None
    tag: str | None = None
    since: float | None = None
    until: float | None = None
    time: Literal["created", "due", "finished"] = "created"
    text: str | None = None
    fields: tuple[tuple[str, str], ...] = ()

    def problem(self) -> str | None:
        """Why the filter cannot mean anything, naming the field."""
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                return f"{name}: must be a time, is {value}"
        for name, value in self._texts():
            if not is_storable(value):
                return f"{name}: must be text without NUL characters or lone surrogates"
        if self.text == "":
            return "text: must not be empty; leave it out to find everything"
        for path, _ in self.fields:
            if not all(path.split(".")):
                return f"fields: {path!r} is not a path; write member.member, such as feed.host"
        return None

    def _texts(self) -> Iterator[tuple[str, str]]:
        for name in ("id_prefix", "queue", "task", "key", "tag", "text"):
            if (value := getattr(self, name)) is not None:
                yield name, value
        yield from (("ids", id_) for id_ in self.ids or ())
        yield from (("fields", text) for field in self.fields for text in field)


def matches(wanted: Filter, job: Job) -> bool:
    checks = (
        wanted.ids is None or job.id in wanted.ids,
        wanted.id_prefix is None or job.id.startswith(wanted.id_prefix),
        wanted.queue is None or job.queue == wanted.queue,
        wanted.states is None or job.state in wanted.states,
        wanted.task is None or job.task == wanted.task,
        wanted.key is None or job.lane == wanted.key,
        wanted.tag is None or wanted.tag in job.tags,
        _in_time(wanted, job),
    )
    return all(checks) and _has_text(wanted.text, job) and _has_fields(wanted.fields, job)


def _in_time(wanted: Filter, job: Job) -> bool:
    if wanted.since is None and wanted.until is None:
        return True
    at: float | None = getattr(job, wanted.time)
    return (
        at is not None
        and (wanted.since is None or at >= wanted.since)
        and (wanted.until is None or at < wanted.until)
    )


def _has_text(text: str | None, job: Job) -> bool:
    if text is None:
        return True
    error = (job.error.type, job.error.message) if job.error else ()
    plain = (job.task, job.lane, *job.tags, job.note, job.reason, *error)
    wanted, quoted = folded(text), folded(as_json_text(text))
    return any(wanted in folded(words) for words in plain if words) or any(
        quoted in folded(words) for words in _spellings(job.payload)
    )


def _spellings(payload: bytes) -> Iterator[str]:
    """As it was written, and, where it has escapes that need not be, as Tidemill writes it."""
    written = payload.decode(errors="replace")
    yield written
    if r"\u" in written or r"\/" in written:
        yield msgspec.json.encode(_decoded(payload)).decode()


def _decoded(payload: bytes) -> Any:
    """What an outsider sent may be no JSON at all: it is kept, as a failed job, and has no fields."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None


def _has_fields(fields: tuple[tuple[str, str], ...], job: Job) -> bool:
    if not fields:
        return True
    payload = _decoded(job.payload)
    try:
        return all(value in _texts_at(payload, path.split(".")) for path, value in fields)
    except RecursionError:  # one payload nested a thousand deep must not end every search
        return False


def _texts_at(value: Any, path: list[str]) -> Iterator[str]:
    if isinstance(value, list):
        for element in value:
            yield from _texts_at(element, path)
    elif path:
        if isinstance(value, dict) and path[0] in value:
            yield from _texts_at(value[path[0]], path[1:])
    elif isinstance(value, str):
        yield value
    elif not isinstance(value, dict):
        yield msgspec.json.encode(value).decode()


_FOLD = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}


def folded(text: str) -> str:
    """A to Z made small and nothing else: what every store's own function does alike."""
    return text.translate(_FOLD)


def as_json_text(text: str) -> str:
    """How the text stands inside a JSON string."""
    return msgspec.json.encode(text).decode()[1:-1]
