"""Which jobs a person means: the filter behind find, and behind every bulk change."""

from __future__ import annotations

import msgspec

from tidemill.core.job import Job
from tidemill.core.states import State


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Every field that is set must match. Times are wall times of creation, `since` included."""

    ids: tuple[str, ...] | None = None
    queue: str | None = None
    states: tuple[State, ...] | None = None
    task: str | None = None
    key: str | None = None
    tag: str | None = None
    since: float | None = None
    until: float | None = None


def matches(wanted: Filter, job: Job) -> bool:
    checks = (
        wanted.ids is None or job.id in wanted.ids,
        wanted.queue is None or job.queue == wanted.queue,
        wanted.states is None or job.state in wanted.states,
        wanted.task is None or job.task == wanted.task,
        wanted.key is None or job.lane == wanted.key,
        wanted.tag is None or wanted.tag in job.tags,
        wanted.since is None or job.created >= wanted.since,
        wanted.until is None or job.created < wanted.until,
    )
    return all(checks)
