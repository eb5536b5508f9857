"""What a job's `trace` says: a name of the caller's, or a place in a trace as W3C writes it."""

from __future__ import annotations

import re

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id(trace: str | None, job: str) -> str:
    """What everything done for one request has in common; of a job that was given none, its own id."""
    if trace is None:
        return job
    found = _TRACEPARENT.fullmatch(trace)
    return trace if found is None else found[1]
