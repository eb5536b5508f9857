"""What a job that needs pools waits for in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core.accounts import Denied, Taken, ask, believed
from tidemill.core.batching import needs_of_call
from tidemill.core.breaker import Breaker, Shut
from tidemill.core.calendars import Calendar
from tidemill.core.closing import Closure
from tidemill.core.forecast.known import Known
from tidemill.core.job import Job
from tidemill.core.limits import Limit
from tidemill.core.needs import Need, together
from tidemill.core.pools import PoolSettings, amount_of
from tidemill.core.reserving import Ask
from tidemill.core.windows.window import TINY
from tidemill.inspect.causes import Cause, Code
from tidemill.inspect.facts import Facts
from tidemill.inspect.situation import Situation
from tidemill.inspect.words import Times, full_stop, quantity

HELD_FOR = "held for job "


Pools = dict[tuple[str, str | None], Known]


def needs_of_job(job: Job) -> tuple[Need, ...]:
    """What the call would take if the job were alone in it."""
    if job.batching is not None:
        return needs_of_call(job.batching, [job])
    return together(job.needs, job.extra)


def known_to(situation: Situation, needs: tuple[Need, ...]) -> Pools:
    knows = situation.known()
    found = {(need.pool, need.key): knows((need.pool, need.key)) for need in needs}
    return {place: known for place, known in found.items() if known is not None}


def causes_of_pools(facts: Facts, times: Times) -> Iterator[Cause]:
    """Of every pool the job needs, in the order they are asked."""
    needs = needs_of_job(facts.job)
    if facts.situation is None or not needs:
        return
    known = known_to(facts.situation, needs)
    for need in needs:
        if pool := known.get((need.pool, need.key)):
            closed = list(_closed(need, pool, times))
            yield from closed or _limited(facts.job, need, pool, times)


def wait_of(job: Job, needs: tuple[Need, ...], known: Pools) -> float:
    """Seconds until its pools would let it in if nobody else came, infinite when nobody can say."""
    waits = [0.0]
    for need in needs:
        if pool := known.get((need.pool, need.key)):
            answer = _asked(job, need, pool, pool.settings)
            waits.append(answer.wait if isinstance(answer, Denied) else 0.0)
    return max(waits)


def holds_a_place(job: Job, known: Pools) -> bool:
    """Whether one of its pools keeps a place for it that others may not push back."""
    holds = [pool.account.state.hold for pool in known.values()]
    return any(hold is not None and hold.firm and hold.job == job.id for hold in holds)


def _closed(need: Need, pool: Known, times: Times) -> Iterator[Cause]:
    by_hand, name = pool.account.closed, _named(need)
    if by_hand is not None and by_hand.holds(times.now):
        end = "until it is opened" if by_hand.until is None else f"and opens {times.ahead(by_hand.until)}"
        why = f" The reason given is: {full_stop(by_hand.reason)}" if by_hand.reason else ""
        yield Cause(
            Code.POOL_CLOSED,
            f"The {name} was closed by {by_hand.by} at {times.at(by_hand.since)} {end}.{why}",
            _details(need, by=by_hand.by, since=by_hand.since, until=by_hand.until, reason=by_hand.reason),
        )
    breaker = breakers.tidied(pool.account.breaker, pool.now)
    gate = breakers.gate(breaker, need.units, pool.now)
    if isinstance(gate, Shut):
        holds = gate.closure.holds(times.now)
        yield _tripped(need, gate.closure, times) if holds else _probed(need, breaker, gate)


def _tripped(need: Need, closure: Closure, times: Times) -> Cause:
    end = "until a person opens it"
    if closure.until is not None:
        end = f"and is tried again {times.ahead(closure.until)}"
    said = f" It said: {full_stop(closure.text)}" if closure.text else ""
    return Cause(
        Code.POOL_TRIPPED,
        f"The provider refused calls of the {_named(need)} ({closure.reason}): it is closed since "
        f"{times.at(closure.since)} {end}.{said}",
        _details(
            need, reason=closure.reason.value, since=closure.since, until=closure.until, unit=closure.unit
        ),
    )


def _probed(need: Need, breaker: Breaker, gate: Shut) -> Cause:
    job = breaker.probe.job if breaker.probe else None
    return Cause(
        Code.POOL_PROBED,
        f"The {_named(need)} was closed ({gate.closure.reason}), and job {job} tries it alone: the others "
        "follow when it has come back.",
        _details(need, reason=gate.closure.reason.value, probe=job),
    )


def _limited(job: Job, need: Need, pool: Known, times: Times) -> Iterator[Cause]:
    """Every limit that refuses, each asked alone, then a place that is kept for another."""
    found = False
    for limit in pool.settings.limits:
        alone = replace(pool.settings, limits=(limit,))
        free = replace(pool, account=replace(pool.account, state=replace(pool.account.state, hold=None)))
        answer = _asked(job, need, free, alone)
        if isinstance(answer, Denied):
            found = True
            yield _refused(job, need, free, limit, answer.wait, times)
    answer = _asked(job, need, pool, pool.settings)
    if not found and isinstance(answer, Denied) and answer.cause.startswith(HELD_FOR):
        holder = answer.cause.removeprefix(HELD_FOR)
        yield Cause(
            Code.POOL_HELD,
            f"The {_named(need)} keeps a place for job {holder}, which was overtaken before and which this "
            f"one would push back. That place comes free {times.ahead(times.now + answer.wait)}.",
            _details(need, job=holder, until=times.now + answer.wait),
        )


def _refused(  # noqa: PLR0917 - a refusal is told whole
    job: Job, need: Need, pool: Known, limit: Limit, wait: float, times: Times
) -> Cause:
    units, name = amount_of(need.units, limit) or 0.0, _named(need)
    until = None if math.isinf(wait) else times.now + wait
    details = _details(need, limit=limit.name, amount=limit.amount, units=units, until=until)
    slot = f"The next slot is {'when a call has ended' if until is None else times.ahead(until)}."
    amount = quantity(limit.amount, limit.name)
    if units > pool.settings.most(limit) + TINY:
        ends = None if pool.override is None else pool.override.until
        return Cause(
            Code.POOL_TOO_SMALL,
            f"The {name} allows {amount}, and the job needs {units:g} at once: while that holds it cannot "
            f"start.{_override(pool, times)}",
            {**details, "until": ends},
        )
    if _lets_in(job, need, _unramped(pool), limit):
        said = f"The {name} was closed and opens slowly: its {amount} are not all open yet. {slot}"
        return Cause(Code.POOL_RAMP, said, details)
    urgent = pool.settings.urgent
    if job.priority > urgent and _lets_in(replace(job, priority=urgent), need, pool, limit):
        said = (
            f"What is left of the {amount} of the {name} is held back for priorities up to {urgent}, and the "
            f"job has {job.priority}. {slot}"
        )
        return Cause(Code.POOL_HELD_BACK, said, {**details, "urgent": urgent})
    if isinstance(limit.per, Calendar) and _is_free(pool, limit, units):
        said = (
            f"The {name} has enough left of its {amount}, but takes nothing around the turn of the "
            f"{limit.per.every} in {limit.per.zone}: a call could count on either side of it. {slot}"
        )
        return Cause(Code.POOL_TURN, said, details)
    said = f"The {name} allows {amount}, and not enough of it is free for the {units:g} the job needs. {slot}"
    return Cause(Code.POOL_LIMIT, said, details)


def _unramped(pool: Known) -> Known:
    return replace(
        pool, account=replace(pool.account, breaker=replace(pool.account.breaker, ramp=None, cap=None))
    )


def _lets_in(job: Job, need: Need, pool: Known, limit: Limit) -> bool:
    return not isinstance(_asked(job, need, pool, replace(pool.settings, limits=(limit,))), Denied)


def _is_free(pool: Known, limit: Limit, units: float) -> bool:
    """By the count alone, whatever else keeps calls back."""
    settings = replace(pool.settings, limits=(limit,))
    (held,) = believed(settings, pool.account, pool.now).limits
    return pool.account.state.counted(held, pool.now, settings.guards) + units <= held.amount + TINY


def _asked(job: Job, need: Need, pool: Known, settings: PoolSettings) -> Taken | Denied:
    return ask(settings, pool.account, Ask(job.id, need.units, job.priority), pool.now)


def _override(pool: Known, times: Times) -> str:
    if pool.override is None:
        return ""
    end = "" if pool.override.until is None else f", which ends {times.ahead(pool.override.until)}"
    return f" It is an override by {pool.override.by}{end}."


def _named(need: Need) -> str:
    return f"pool {need.pool!r}" + (f" for {need.key!r}" if need.key is not None else "")


def _details(need: Need, **facts: Any) -> dict[str, Any]:
    return {"pool": need.pool, "key": need.key, **facts}
