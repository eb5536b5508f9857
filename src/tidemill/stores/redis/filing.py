"""Where the record of a job says that it is to be found: what a check compares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidemill.core.job import Job
from tidemill.core.states import FINAL, LIVE, PENDING, State
from tidemill.stores.redis import keys
from tidemill.stores.redis.records import LETTERS, in_lane, member


class Filed(NamedTuple):
    """As `lua/agrees.lua` checks it."""

    kind: str
    key: str
    member: bytes | str
    expected: bytes | str = ""


def filed(job: Job) -> Iterator[Filed]:
    yield Filed("field", keys.page(job.seq), str(job.seq % keys.PAGE), job.id)
    yield from _by_state(job)
    if job.flow is not None:
        yield Filed("order", keys.parts(job.flow.id), member(job), str(job.seq))
    if job.expires is not None and job.state in PENDING:
        yield Filed("order", keys.EXPIRING, member(job), repr(job.expires))
    if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
        yield Filed("order", keys.unique(job.queue, job.unique_key), member(job))


def _by_state(job: Job) -> Iterator[Filed]:
    match job.state:
        case State.READY:
            yield Filed("order", keys.lane(job.queue, job.lane), in_lane(job), str(job.priority))
            if job.lane:
                yield Filed("field", keys.lanes(job.queue), job.lane)
            else:
                yield Filed("field", keys.SERVED, job.queue)
        case State.SCHEDULED:
            yield Filed("order", keys.scheduled(job.queue), member(job), repr(job.due))
        case State.RUNNING:
            yield Filed("field", keys.running(job.queue), member(job))
            yield Filed("member", keys.held(job.worker or ""), member(job))
        case State.WAITING if job.after is not None:
            yield Filed("order", keys.successors(job.after), member(job))
        case state if state in FINAL and job.flow is not None:
            yield Filed("order", keys.ended_parts(job.queue, state), member(job), repr(job.finished))
            yield Filed("field", keys.part_ends(job.flow.id), job.id, LETTERS[state])
        case state if state in FINAL:
            yield Filed("order", keys.ended(job.queue, state), member(job), repr(job.finished))
