"""The attempt that the running code belongs to, as context variables.

The worker sets the variables at the start of each attempt; threads and isolated processes inherit them."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

import msgspec

from tidemill.core.claims import ClaimedJob
from tidemill.core.jobs import trace_id

CURRENT_ATTEMPT: ContextVar[ClaimedJob | None] = ContextVar("tidemill_attempt", default=None)
CURRENT_BATCH: ContextVar[tuple[ClaimedJob, ...]] = ContextVar("tidemill_batch", default=())
"""The jobs of the batch that the handler runs for; `CURRENT_ATTEMPT` is the first of them."""


class CurrentAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt in which the code runs. `attempt` counts from 1. `trace` is the job's trace id, or the
    job's id if the job has no trace."""

    job: str
    task: str
    queue: str
    attempt: int
    trace: str


def current_attempt() -> CurrentAttempt | None:
    """Returns the attempt in which this code runs; None outside of an attempt."""
    claimed = CURRENT_ATTEMPT.get()
    if claimed is None:
        return None
    return CurrentAttempt(
        job=claimed.id,
        task=claimed.task,
        queue=claimed.queue,
        attempt=claimed.attempt,
        trace=trace_id(claimed.trace, claimed.id),
    )


def add_current_attempt(
    _logger: Any, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Structlog processor that adds job, task, attempt and trace to every log line of a handler, and returns
    the line. Values that the line already has are kept."""
    claimed = CURRENT_ATTEMPT.get()
    if claimed is not None:
        line.setdefault("job", claimed.id)
        line.setdefault("task", claimed.task)
        line.setdefault("attempt", claimed.attempt)
        line.setdefault("trace", trace_id(claimed.trace, claimed.id))
    return line


class CurrentAttemptFilter(logging.Filter):
    """A filter for handlers of the `logging` module that adds `job`, `task`, `attempt` and `trace` to every
    record. Outside of an attempt each of them is "-"."""

    def filter(self, record: logging.LogRecord) -> bool:
        known = add_current_attempt(None, "", {}) or _NO_ATTEMPT
        for name, value in known.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


_NO_ATTEMPT = dict.fromkeys(("job", "task", "attempt", "trace"), "-")
