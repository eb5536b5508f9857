"""The causes an explanation names."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tidemill.core.job import Error
from tidemill.inspect.words import full_stop


class Code(StrEnum):
    """Causes, for programs. A code stays what it means; new ones may be added."""

    EXPIRED = "expired"  # past its expiry: it is cancelled instead of started
    PAUSED = "paused"  # somebody paused the queue
    UNSERVED = "unserved"  # no living worker serves the queue
    UNKNOWN_TASK = "unknown_task"  # the workers that were offered it do not know its task
    SCHEDULED = "scheduled"  # it is to start later
    RETRYING = "retrying"  # its last attempt failed, and it waits before the next
    SNOOZED = "snoozed"  # its handler put it off
    PREDECESSOR = "predecessor"  # it starts when the job before it with the same unique key has ended
    STEPS_BEFORE = "steps_before"  # a step of a flow: it becomes a job when the steps before it are done
    FLOW_ENDED = "flow_ended"  # a step of a flow that ended without it
    POOL_CLOSED = "pool_closed"  # somebody closed a pool it needs
    POOL_TRIPPED = "pool_tripped"  # a provider refused calls, and the pool is closed until a time or by hand
    POOL_PROBED = "pool_probed"  # a pool was closed, and one job tries it for all
    POOL_TOO_SMALL = "pool_too_small"  # it needs more than a limit allows since it was changed
    POOL_RAMP = "pool_ramp"  # a pool was closed and opens slowly
    POOL_HELD_BACK = "pool_held_back"  # what is left of a limit is for more urgent jobs
    POOL_HELD = "pool_held"  # a pool keeps a place for a larger job
    POOL_TURN = "pool_turn"  # nothing is taken around the turn of a limit's day, week or month
    POOL_LIMIT = "pool_limit"  # a limit of a pool it needs is used up
    UNRIPE = "unripe"  # it waits for others to share a call with
    QUEUE_LIMIT = "queue_limit"  # as many jobs of the queue run as may
    KEY_LIMIT = "key_limit"  # as many jobs of its key run as may
    WORKERS_BUSY = "workers_busy"  # every worker that serves the queue has its hands full
    BEHIND = "behind"  # others of its lane start first
    NEXT = "next"  # nothing is in its way
    RUNNING = "running"
    WORKER_SILENT = "worker_silent"  # running as far as is known: its worker no longer reports
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Cause(msgspec.Struct, frozen=True):
    """`details` are the facts behind the sentence, ready for JSON; times are wall times."""

    code: Code
    sentence: str
    details: dict[str, Any]


def words_of(error: Error) -> str:
    return full_stop(f"{error.type}: {error.message}" if error.message else error.type)


def data_of(error: Error | None) -> dict[str, str] | None:
    return None if error is None else {"type": error.type, "message": error.message}
