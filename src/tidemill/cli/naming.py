"""A job as it is named on the command line: its id, or the beginning of it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidemill.app import Tidemill
from tidemill.core.filters import Filter
from tidemill.errors import JobNotFound
from tidemill.inspect.words import plural

SHORTEST = 8
"""Shorter beginnings mean another job tomorrow: ids begin with the time they were made at."""

NAMED = 5


async def full_ids(app: Tidemill, typed: Sequence[str]) -> list[str]:
    """An id that is there is meant as it is. What nothing begins with is left as it was typed: whoever
    asks for it says that there is no such job."""
    there = await app.store.get(typed)
    return [id_ if job is not None else await _begun(app, id_) for id_, job in zip(typed, there, strict=True)]


async def full_id(app: Tidemill, typed: str) -> str:
    (id_,) = await full_ids(app, [typed])
    if (await app.store.get([id_]))[0] is None:
        raise JobNotFound(no_such([typed]))
    return id_


def no_such(typed: Sequence[str]) -> str:
    named = f"there is no {'job' if len(typed) == 1 else 'jobs'} {', '.join(map(repr, typed))}"
    short = any(len(id_) < SHORTEST for id_ in typed)
    rule = f"; the beginning of an id is enough with {SHORTEST} characters or more" if short else ""
    return f"{named}: the id is wrong, or it was pruned{rule}"


async def _begun(app: Tidemill, typed: str) -> str:
    if len(typed) < SHORTEST:
        return typed
    wanted = Filter(id_prefix=typed)
    found = (await app.inspect.find(wanted, limit=NAMED, looks=None)).jobs
    if len(found) <= 1:
        return found[0].id if found else typed
    named = ", ".join(f"{job.id} ({job.task}, {job.state})" for job in found)
    more = (await app.inspect.count(wanted, looks=None)).jobs - len(found)
    others = f" and {plural(more, 'other')}" if more else ""
    raise click.UsageError(f"{typed!r} could be {named}{others}; write more of the id")
