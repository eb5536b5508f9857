"""Which attempt the running code belongs to.

The executor sets it at the start of every attempt's own task; from there it is carried into
threads and isolated processes. What is set is the claim as it stands: a job pays for no more.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

import msgspec

from tidemill.core.claims import Claimed
from tidemill.core.traces import trace_id

CURRENT: ContextVar[Claimed | None] = ContextVar("tidemill_attempt", default=None)
TOGETHER: ContextVar[tuple[Claimed, ...]] = ContextVar("tidemill_call", default=())
"""The jobs of the call a batch handler runs for; `CURRENT` is the first of them."""


class CurrentAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """`attempt` counts from 1; `trace` is the job's own id when it was given none, and the trace's when it
    was given a place in one."""

    job: str
    task: str
    queue: str
    attempt: int
    trace: str


def current() -> CurrentAttempt | None:
    """The attempt this code runs in; None outside of one."""
    claimed = CURRENT.get()
    if claimed is None:
        return None
    return CurrentAttempt(
        job=claimed.id,
        task=claimed.task,
        queue=claimed.queue,
        attempt=claimed.attempt,
        trace=trace_id(claimed.trace, claimed.id),
    )


def add_current(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: job, task, attempt and trace on every line a handler writes. What the
    line says itself stays."""
    claimed = CURRENT.get()
    if claimed is not None:
        line.setdefault("job", claimed.id)
        line.setdefault("task", claimed.task)
        line.setdefault("attempt", claimed.attempt)
        line.setdefault("trace", trace_id(claimed.trace, claimed.id))
    return line


class CurrentFilter(logging.Filter):
    """The same for `logging`: on a handler, it gives every record `job`, `task`, `attempt` and `trace`,
    "-" outside of an attempt, for a format such as `%(job)s %(message)s`."""

    def filter(self, record: logging.LogRecord) -> bool:
        known = add_current(None, "", {}) or _NO_ATTEMPT
        for name, value in known.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


_NO_ATTEMPT = dict.fromkeys(("job", "task", "attempt", "trace"), "-")
