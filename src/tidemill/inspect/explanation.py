"""Why a job waits, or what it does: a pure function of facts.

Several causes may hold at once, and ending one of them does not start the job. All are told,
the one most in the way first: what only a person ends, then what ends at a time (the latest
first), then what ends by itself as other jobs do.
"""

from __future__ import annotations

from datetime import tzinfo
from typing import Any

import msgspec

from tidemill.core.needs import Need
from tidemill.core.states import PENDING, State
from tidemill.core.units import IMPLIED
from tidemill.inspect.causes import Cause, Code
from tidemill.inspect.ended import describe_end
from tidemill.inspect.expecting import Start, start_of
from tidemill.inspect.facts import Facts
from tidemill.inspect.running import describe_run
from tidemill.inspect.waiting import causes_of_waiting, next_in_turn
from tidemill.inspect.words import Times, quantity


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`code` and `details` are those of the first of `causes`; `sentence` tells all of them. `starts_at` is
    when a waiting job is expected to start (wall); None when it does not wait or nobody can say."""

    job: str
    queue: str
    task: str
    state: State
    code: Code
    sentence: str
    details: dict[str, Any]
    causes: tuple[Cause, ...]
    starts_at: float | None = None

    def __str__(self) -> str:
        return self.sentence


def explain(facts: Facts, zone: tzinfo | None = None) -> Explanation:
    """Times in the sentence are of `zone`, the machine's own when it is None."""
    job, times = facts.job, Times(facts.now.wall, zone)
    causes = _causes(facts, times)
    told = [cause.sentence for cause in causes]
    start = start_of(facts)
    expected = None if start is None else start.at
    told += [_asked_for(need) for need in job.extra if job.state in PENDING]
    if start is not None and start.at > times.now and (job.needs or job.extra or job.batching):
        told.append(_expected(start, causes, times))
    if job.state in PENDING and job.expires is not None and job.expires > times.now:
        told.append(f"Unless it starts before, it is cancelled {times.ahead(job.expires)}.")
    if job.flow is not None:
        told.append(f"It is job {job.flow.index} of step {job.flow.step!r} of flow {job.flow.id!r}.")
    return Explanation(
        job=job.id,
        queue=job.queue,
        task=job.task,
        state=job.state,
        code=causes[0].code,
        sentence=" ".join(told),
        details=causes[0].details,
        causes=causes,
        starts_at=expected,
    )


def _expected(start: Start, causes: tuple[Cause, ...], times: Times) -> str:
    """With the limit that holds it up, unless it is told already."""
    named = {tuple(cause.details.get(part) for part in ("pool", "key", "limit")) for cause in causes}
    by = start.by
    if by is None or (by.pool, by.key, by.name) in named:
        return f"It is expected to start {times.ahead(start.at)}."
    return f"It is expected to start {times.ahead(start.at)}; until then it is {by} that holds it up most."


def _asked_for(need: Need) -> str:
    units = " and ".join(quantity(amount, unit) for unit, amount in need.units.items() if unit not in IMPLIED)
    return f"While it ran it asked the pool {need.name} for {units or 'a call'} more, which it waits for."


def _causes(facts: Facts, times: Times) -> tuple[Cause, ...]:
    if facts.job.state is State.RUNNING:
        return (describe_run(facts, times),)
    if facts.job.state not in PENDING:
        return (describe_end(facts, times),)
    waits_for = sorted(causes_of_waiting(facts, times), key=_most_in_the_way)
    return tuple(waits_for) or (next_in_turn(facts, times),)


_BY_HAND = (
    Code.PAUSED,
    Code.UNSERVED,
    Code.UNKNOWN_TASK,
    Code.POOL_CLOSED,
    Code.POOL_TRIPPED,
    Code.POOL_TOO_SMALL,
)
"""Without an end of their own."""


def _most_in_the_way(cause: Cause) -> tuple[int, float]:
    if cause.code is Code.EXPIRED:
        return (0, 0.0)
    until = cause.details.get("until")
    if until is not None:
        return (2, -float(until))
    if cause.code in _BY_HAND:
        return (1, 0.0)
    return (3, 0.0)
