"""Filters that select jobs, and the check whether a job matches a filter."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from tidemill.core.jobs import Job
from tidemill.core.states import State
from tidemill.core.validation import is_storable
from tidemill.errors import ConfigurationError

_STATES = tuple(State)
MAX_FIELDS = 20
"""The most pairs in `fields`. Each is a condition of a statement, and a server takes about a thousand."""
_TIMES = ("created", "due", "finished")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter that selects jobs. Every field that is set must match.

    ids: exact ids.
    id_prefix: the beginning of an id.
    flow: the id of the flow that the job belongs to.
    since, until: a range of wall times that includes `since` and excludes `until`.
    time: which time of the job lies in that range.
    text: a text in the task, key, tags, payload, note, reason or error.
        Upper and lower case of A to Z are equal.
        In a payload, each name and each value is searched separately, as unescaped text.
    fields: up to 20 pairs of a path into the payload and the value there, as text:
        `("feed.host", "a.example")`.
        A path goes through the members of objects and through every element of an array."""

    ids: tuple[str, ...] | None = None
    id_prefix: str | None = None
    queue: str | None = None
    states: tuple[State, ...] | None = None
    task: str | None = None
    key: str | None = None
    tag: str | None = None
    flow: str | None = None
    since: float | None = None
    until: float | None = None
    time: Literal["created", "due", "finished"] = "created"
    text: str | None = None
    fields: tuple[tuple[str, str], ...] = ()

    def problem(self) -> str | None:
        """Returns why the filter is invalid, naming the field; None if it is valid."""
        return (
            _problem_with_lists(self)
            or _problem_with_states(self.states or ())
            or _problem_with_times(self)
            or _problem_with_texts(self)
            or _problem_with_fields(self.fields)
        )


def check_filter(job_filter: Filter) -> Filter:
    if not isinstance(job_filter, Filter):
        raise ConfigurationError(
            f'jobs are found by a Filter, such as Filter(queue="feeds"), not by {job_filter!r}'
        )
    if problem := job_filter.problem():
        raise ConfigurationError(f"the filter cannot mean anything: {problem}")
    return job_filter


def _problem_with_lists(job_filter: Filter) -> str | None:
    examples = {"ids": '("a",)', "states": "(State.FAILED,)", "fields": '(("feed.host", "a.example"),)'}
    for name, example in examples.items():
        value = getattr(job_filter, name)
        # A single string is a sequence of letters, and never what was meant.
        if value is not None and not isinstance(value, tuple | list):
            return f"{name}: must be a tuple, such as {example}, is {value!r}"
    return None


def _problem_with_states(states: tuple[State, ...]) -> str | None:
    for state in states:
        if state not in _STATES:
            return f"states: there is no state {state!r}; there are {', '.join(State)}"
    return None


def _problem_with_times(job_filter: Filter) -> str | None:
    if job_filter.time not in _TIMES:
        return f"time: must be one of {', '.join(_TIMES)}, is {job_filter.time!r}"
    for name in ("since", "until"):
        value = getattr(job_filter, name)
        if isinstance(value, datetime):
            return f"{name}: must be a Unix time, is a datetime; write {name}=moment.timestamp()"
        if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
            return f"{name}: must be a Unix time, is {value!r}"
    return None


def _problem_with_texts(job_filter: Filter) -> str | None:
    named = ("id_prefix", "queue", "task", "key", "tag", "flow", "text")
    texts = [(name, value) for name in named if (value := getattr(job_filter, name)) is not None]
    for name, value in texts + [("ids", id_) for id_ in job_filter.ids or ()]:
        if not (isinstance(value, str) and is_storable(value)):
            return f"{name}: must be text without NUL characters or lone surrogates, is {value!r}"
    if job_filter.text == "":
        return "text: must not be empty; leave it out to find everything"
    return None


def _problem_with_fields(fields: tuple[tuple[str, str], ...]) -> str | None:
    if len(fields) > MAX_FIELDS:
        return f"fields: must be at most {MAX_FIELDS} pairs, has {len(fields)}; leave some out"
    for field in fields:
        pair = isinstance(field, tuple | list) and len(field) == len(("path", "value"))
        if not pair or not all(isinstance(text, str) and is_storable(text) for text in field):
            return f"fields: must be pairs of a path and a value, both text, has {field!r}"
        if not all(field[0].split(".")):
            return f"fields: {field[0]!r} is not a path; write member.member, such as feed.host"
    return None


_EXACT_VALUE = re.compile(r"-?\d+|true|false|null")
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"|[^\s"{}\[\],:]+')


def matches_filter(job_filter: Filter, job: Job) -> bool:
    checks = (
        job_filter.ids is None or job.id in job_filter.ids,
        job_filter.id_prefix is None or job.id.startswith(job_filter.id_prefix),
        job_filter.queue is None or job.queue == job_filter.queue,
        job_filter.states is None or job.state in job_filter.states,
        job_filter.task is None or job.task == job_filter.task,
        job_filter.key is None or job.key == job_filter.key,
        job_filter.tag is None or job_filter.tag in job.tags,
        job_filter.flow is None or (job.flow is not None and job.flow.id == job_filter.flow),
        _is_in_period(job_filter, job),
    )
    return all(checks) and _has_text(job_filter.text, job) and _has_fields(job_filter.fields, job)


def _is_in_period(job_filter: Filter, job: Job) -> bool:
    if job_filter.since is None and job_filter.until is None:
        return True
    at: float | None = getattr(job, job_filter.time)
    return (
        at is not None
        and (job_filter.since is None or at >= job_filter.since)
        and (job_filter.until is None or at < job_filter.until)
    )


def _has_text(text: str | None, job: Job) -> bool:
    if text is None:
        return True
    error = (job.error.type, job.error.message) if job.error else ()
    plain = (job.task, job.key, *job.tags, job.note, job.reason, *error)
    needle = fold_case(text)
    return any(needle in fold_case(words) for words in plain if words) or _payload_has(text, job.payload)


def _payload_has(text: str, payload: bytes) -> bool:
    """True if a name or value in the payload contains the text."""
    written = payload.lower()  # for bytes, this changes A to Z only
    as_written = fold_case(as_json_text(text)).encode() in written
    if not as_written and rb"\u" not in written and rb"\/" not in written:
        return False
    if not _is_json(payload):  # a rejected arrival may not be JSON: it is searched as it is
        return as_written
    needle = fold_case(text)
    return any(needle in piece for piece in _payload_tokens(written.decode()))


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
        payload.decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def _payload_tokens(written: str) -> Iterator[str]:
    """Yields the tokens of a JSON text: names and strings unescaped, numbers and constants as written.
    `written` is the payload in lower case."""
    for token in _TOKEN.finditer(written):
        inside = token[1]
        if inside is None:
            yield token[0]
        elif "\\" in inside:
            decoded = _decode_json(token[0].encode())
            yield inside if decoded is None else fold_case(decoded)
        else:
            yield inside


def _decode_json(payload: bytes) -> Any:
    """Returns the decoded payload; None if it is not valid JSON. A rejected arrival is stored as a failed
    job, and its payload may be any bytes."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None


def _has_fields(fields: tuple[tuple[str, str], ...], job: Job) -> bool:
    if not fields:
        return True
    payload = _decode_json(job.payload)
    try:
        return all(value in _texts_at(payload, path.split(".")) for path, value in fields)
    except RecursionError:  # a payload nested a thousand levels deep must not end every search
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


def payload_search_text(path: str, value: str) -> str:
    """Returns a text to search for in raw payloads, before they are decoded. Every payload without JSON
    escapes that has this `value` at `path` contains the text."""
    if _EXACT_VALUE.fullmatch(value):
        return value
    searched = path.rsplit(".", maxsplit=1)[-1] if _is_numeric(value) else value
    return msgspec.json.encode(searched).decode()


def _is_numeric(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def fold_case(text: str) -> str:
    """Returns the text with A to Z in lower case. All remaining letters stay as they are."""
    if text.isascii():
        return text.lower()
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def as_json_text(text: str) -> str:
    """Returns the text as it appears inside a JSON string: escaped, without the quotes."""
    return msgspec.json.encode(text).decode()[1:-1]
