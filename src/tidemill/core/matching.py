"""Whether a job is one that a filter means: the one rule behind every store's search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.core.filters import Filter
from tidemill.core.job import Job

_WHOLE = re.compile(r"-?\d+|true|false|null")
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"|[^\s"{}\[\],:]+')


def matches(wanted: Filter, job: Job) -> bool:
    checks = (
        wanted.ids is None or job.id in wanted.ids,
        wanted.id_prefix is None or job.id.startswith(wanted.id_prefix),
        wanted.queue is None or job.queue == wanted.queue,
        wanted.states is None or job.state in wanted.states,
        wanted.task is None or job.task == wanted.task,
        wanted.key is None or job.key == wanted.key,
        wanted.tag is None or wanted.tag in job.tags,
        wanted.flow is None or (job.flow is not None and job.flow.id == wanted.flow),
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
    plain = (job.task, job.key, *job.tags, job.note, job.reason, *error)
    wanted = folded(text)
    return any(wanted in folded(words) for words in plain if words) or _payload_has(text, job.payload)


def _payload_has(text: str, payload: bytes) -> bool:
    """Few payloads have the text in them as it is written; only those are read piece by piece."""
    written = payload.lower()  # of bytes, that is A to Z alone
    as_written = folded(as_json_text(text)).encode() in written
    if not as_written and rb"\u" not in written and rb"\/" not in written:
        return False
    if not _is_json(payload):  # what an outsider sent and was refused is searched as it is
        return as_written
    wanted = folded(text)
    return any(wanted in piece for piece in _pieces(written.decode()))


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
        payload.decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def _pieces(written: str) -> Iterator[str]:
    """Names and strings as they read, numbers and other words as they are written. Across two of them
    nothing is found: a person reads no JSON."""
    for token in _TOKEN.finditer(written):
        inside = token[1]
        if inside is None:
            yield token[0]
        elif "\\" in inside:
            decoded = _decoded(token[0].encode())
            yield inside if decoded is None else folded(decoded)
        else:
            yield inside


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


def part_of_payload(path: str, value: str) -> str:
    """What a payload with that field has in it, unless it has escapes: the value, or the name where the value
    is a number that can be written in several ways."""
    if _WHOLE.fullmatch(value):
        return value
    said = path.rsplit(".", maxsplit=1)[-1] if _is_number(value) else value
    return msgspec.json.encode(said).decode()


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def folded(text: str) -> str:
    """A to Z made small and nothing else: what every store's own function does alike."""
    if text.isascii():
        return text.lower()
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def as_json_text(text: str) -> str:
    """How the text stands inside a JSON string."""
    return msgspec.json.encode(text).decode()[1:-1]
