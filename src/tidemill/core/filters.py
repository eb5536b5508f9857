"""Which jobs a person means: the filter behind find, and behind every bulk change."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Literal

import msgspec

from tidemill.core.names import is_storable
from tidemill.core.states import State
from tidemill.errors import ConfigurationError

_STATES = tuple(State)
MAX_FIELDS = 20
"""Pairs in `fields`. Each is a condition of a statement, and a server takes about a thousand."""
_TIMES = ("created", "due", "finished")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Every field that is set must match.

    id_prefix: what the id begins with, for ids that people shorten.
    flow: the id of the flow it is a part of.
    since, until: wall times, `since` included and `until` not; `time` says of what.
    text: occurs in the task, key, tags, payload, note, reason or error; A to Z match in either case.
        A payload's names and values are searched one by one, as they read, however they are escaped.
    fields: up to 20 pairs of a path into the payload and the value there, as text:
        `("feed.host", "a.example")`.
        A path goes through the members of objects and through every element of an array.
    """

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
        """Why the filter cannot mean anything, naming the field."""
        return (
            _problem_with_lists(self)
            or _problem_with_states(self.states or ())
            or _problem_with_times(self)
            or _problem_with_texts(self)
            or _problem_with_fields(self.fields)
        )


def checked(wanted: Filter) -> Filter:
    if not isinstance(wanted, Filter):
        raise ConfigurationError(
            f'jobs are found by a Filter, such as Filter(queue="feeds"), not by {wanted!r}'
        )
    if problem := wanted.problem():
        raise ConfigurationError(f"the filter cannot mean anything: {problem}")
    return wanted


def _problem_with_lists(wanted: Filter) -> str | None:
    examples = {"ids": '("a",)', "states": "(State.FAILED,)", "fields": '(("feed.host", "a.example"),)'}
    for name, example in examples.items():
        value = getattr(wanted, name)
        # A lone string is a sequence of letters, and never what was meant.
        if value is not None and not isinstance(value, tuple | list):
            return f"{name}: must be a tuple, such as {example}, is {value!r}"
    return None


def _problem_with_states(states: tuple[State, ...]) -> str | None:
    for state in states:
        if state not in _STATES:
            return f"states: there is no state {state!r}; there are {', '.join(State)}"
    return None


def _problem_with_times(wanted: Filter) -> str | None:
    if wanted.time not in _TIMES:
        return f"time: must be one of {', '.join(_TIMES)}, is {wanted.time!r}"
    for name in ("since", "until"):
        value = getattr(wanted, name)
        if isinstance(value, datetime):
            return f"{name}: must be a Unix time, is a datetime; write {name}=moment.timestamp()"
        if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
            return f"{name}: must be a Unix time, is {value!r}"
    return None


def _problem_with_texts(wanted: Filter) -> str | None:
    named = ("id_prefix", "queue", "task", "key", "tag", "flow", "text")
    texts = [(name, value) for name in named if (value := getattr(wanted, name)) is not None]
    for name, value in texts + [("ids", id_) for id_ in wanted.ids or ()]:
        if not (isinstance(value, str) and is_storable(value)):
            return f"{name}: must be text without NUL characters or lone surrogates, is {value!r}"
    if wanted.text == "":
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
