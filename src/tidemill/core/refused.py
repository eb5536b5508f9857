"""A request that cannot become a job, as it is kept: a failed one, which may be retried by hand."""

from __future__ import annotations

from msgspec.structs import replace

from tidemill.core.job import Error, Group, Job, NewJob, problem_with
from tidemill.core.states import State
from tidemill.core.transitions import REFUSED, created

_KEPT = ("priority", "key", "timeout", "trace", "tags")
"""Not when it was to start or expire, nor its unique key or pools: those hold from when a job comes to be."""


def refused(new: NewJob, queue: str, seq: int, now: float, error: Error) -> Job:
    """Of what is wrong with it no more is kept than any job may have. The rest is: one that is retried has
    the limits and the place that it asked for."""
    kept = NewJob(
        id=new.id, task=new.task, payload=new.payload.decode(errors="replace").encode(), flow=new.flow
    )
    good = {field: value for field in _KEPT if _is_good(field, value := getattr(new, field))}
    job = created(replace(kept, **good), queue, seq, now)
    return replace(job, state=State.FAILED, finished=now, error=error, reason=REFUSED)


def _is_good(field: str, value: object) -> bool:
    alone = replace(NewJob(id="-", task="-", payload=b"{}"), **{field: value})
    return problem_with(Group("-", (alone,))) is None
