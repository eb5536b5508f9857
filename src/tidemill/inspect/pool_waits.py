"""Finds the pools and limits that keep a job waiting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core.accounts import UnitDenial, UnitGrant, pool_with_learned_limits, request_units
from tidemill.core.batching import call_needs
from tidemill.core.breaker import Breaker, ClosedGate
from tidemill.core.calendars import Calendar
from tidemill.core.closures import Closure
from tidemill.core.forecast.pool_outlook import PoolOutlook
from tidemill.core.jobs import Job
from tidemill.core.limits import Limit, SpacedLimit
from tidemill.core.needs import Need, combine_needs
from tidemill.core.overrides import Override, override_in_force
from tidemill.core.pools import LimitChanges, PoolSettings, call_amount
from tidemill.core.reservations import UnitRequest
from tidemill.core.windows.base import TOLERANCE
from tidemill.inspect.causes import Cause, CauseCode
from tidemill.inspect.explanation_inputs import ExplanationInputs
from tidemill.inspect.forecast_inputs import StoreSnapshot
from tidemill.inspect.formatting import TimeFormatter, as_sentence, format_quantity, format_spacing

HELD_FOR_PREFIX = "held for job "


PoolsByKey = dict[tuple[str, str | None], PoolOutlook]


def needs_of_job(job: Job) -> tuple[Need, ...]:
    """Returns the pools and units that a call for this job alone needs."""
    if job.batching is not None:
        return call_needs(job.batching, [job])
    return combine_needs(job.needs, job.deferred_needs)


def find_pools(snapshot: StoreSnapshot, needs: tuple[Need, ...]) -> PoolsByKey:
    find_pool = snapshot.known()
    found = {(need.pool, need.key): find_pool((need.pool, need.key)) for need in needs}
    return {pool_key: pool for pool_key, pool in found.items() if pool is not None}


def find_pool_causes(facts: ExplanationInputs, times: TimeFormatter) -> Iterator[Cause]:
    """Yields the causes why pools keep the job waiting, for each pool that the job needs."""
    needs = needs_of_job(facts.job)
    if facts.snapshot is None or not needs:
        return
    known = find_pools(facts.snapshot, needs)
    for need in needs:
        if pool := known.get((need.pool, need.key)):
            closed = list(_closure_causes(need, pool, times))
            yield from closed or _limit_causes(facts.job, need, pool, times)


def pool_wait_seconds(job: Job, needs: tuple[Need, ...], known: PoolsByKey) -> float:
    """Returns the seconds until all pools can grant the units in `needs`; infinite if unknown. Pools that are
    not in `known` cause no wait."""
    waits = [0.0]
    for need in needs:
        if pool := known.get((need.pool, need.key)):
            answer = _ask_pool(job, need, pool, pool.settings)
            waits.append(answer.wait if isinstance(answer, UnitDenial) else 0.0)
    return max(waits)


def has_firm_hold(job: Job, known: PoolsByKey) -> bool:
    """True if a pool keeps capacity for this job that only more urgent jobs can still take."""
    holds = [pool.account.state.hold for pool in known.values()]
    return any(hold is not None and hold.firm and hold.job == job.id for hold in holds)


def _closure_causes(need: Need, pool: PoolOutlook, times: TimeFormatter) -> Iterator[Cause]:
    by_hand, name = pool.account.closed, _pool_text(need)
    if by_hand is not None and by_hand.holds(times.now):
        end = "until it is opened" if by_hand.until is None else f"and opens {times.in_future(by_hand.until)}"
        why = f" The reason given is: {as_sentence(by_hand.reason)}" if by_hand.reason else ""
        yield Cause(
            CauseCode.POOL_CLOSED,
            f"The {name} was closed by {by_hand.by} at {times.clock_time(by_hand.since)} {end}.{why}",
            _pool_details(
                need, by=by_hand.by, since=by_hand.since, until=by_hand.until, reason=by_hand.reason
            ),
        )
    breaker = breakers.drop_expired_closures(pool.account.breaker, pool.now)
    gate = breakers.check_gate(breaker, need.units, pool.now)
    if isinstance(gate, ClosedGate):
        holds = gate.closure.holds(times.now)
        yield _breaker_cause(need, gate.closure, times) if holds else _probe_cause(need, breaker, gate)


def _breaker_cause(need: Need, closure: Closure, times: TimeFormatter) -> Cause:
    end = "until a person opens it"
    if closure.until is not None:
        end = f"and is tried again {times.in_future(closure.until)}"
    provider_text = f" It said: {as_sentence(closure.text)}" if closure.text else ""
    return Cause(
        CauseCode.POOL_TRIPPED,
        f"The provider refused calls of the {_pool_text(need)} ({closure.reason}): it is closed since "
        f"{times.clock_time(closure.since)} {end}.{provider_text}",
        _pool_details(
            need, reason=closure.reason.value, since=closure.since, until=closure.until, unit=closure.unit
        ),
    )


def _probe_cause(need: Need, breaker: Breaker, gate: ClosedGate) -> Cause:
    job = breaker.probe.job if breaker.probe else None
    return Cause(
        CauseCode.POOL_PROBED,
        f"The {_pool_text(need)} was closed ({gate.closure.reason}), and job {job} tries it alone: the "
        "others follow when it has come back.",
        _pool_details(need, reason=gate.closure.reason.value, probe=job),
    )


def _limit_causes(job: Job, need: Need, pool: PoolOutlook, times: TimeFormatter) -> Iterator[Cause]:
    """Yields a cause for every limit that refuses the job. If no limit does, yields the pool's hold for
    another job, if there is one."""
    found = False
    for limit in pool.settings.limits:
        alone = replace(pool.settings, limits=(limit,))
        free = replace(pool, account=replace(pool.account, state=replace(pool.account.state, hold=None)))
        answer = _ask_pool(job, need, free, alone)
        if isinstance(answer, UnitDenial):
            found = True
            yield _limit_cause(job, need, free, limit, answer.wait, times)
    answer = _ask_pool(job, need, pool, pool.settings)
    if not found and isinstance(answer, UnitDenial) and answer.cause.startswith(HELD_FOR_PREFIX):
        holder = answer.cause.removeprefix(HELD_FOR_PREFIX)
        yield Cause(
            CauseCode.POOL_HELD,
            f"The {_pool_text(need)} keeps a place for job {holder}, which was overtaken before and which "
            f"this one would push back. That place comes free {times.in_future(times.now + answer.wait)}.",
            _pool_details(need, job=holder, until=times.now + answer.wait),
        )


def _limit_cause(  # noqa: PLR0917 - the facts of one refusal
    job: Job, need: Need, pool: PoolOutlook, limit: Limit, wait: float, times: TimeFormatter
) -> Cause:
    units, name = call_amount(need.units, limit) or 0.0, _pool_text(need)
    until = None if math.isinf(wait) else times.now + wait
    details = _pool_details(need, limit=limit.name, amount=limit.amount, units=units, until=until)
    slot = f"The next slot is {'when a call has ended' if until is None else times.in_future(until)}."
    amount = format_quantity(limit.amount, limit.name)
    if units > pool.settings.most(limit) + TOLERANCE:
        override = _override_of_limit(pool, limit)
        return Cause(
            CauseCode.POOL_TOO_SMALL,
            f"The {name} allows {amount}, and the job needs {units:g} at once: while that holds it cannot "
            f"start.{_override_text(override, times)}",
            {**details, "until": None if override is None else override.until},
        )
    if isinstance(limit, SpacedLimit):
        since = times.clock_time(pool.account.spacings[limit.name].since)
        learned = f"Learned: {format_spacing(limit.spacing)}, since {since}."
        sentence = f"The provider refused calls of the {name}. {learned} {slot}"
        return Cause(CauseCode.POOL_LIMIT, sentence, {**details, "spacing": limit.spacing})
    if _is_admitted(job, need, _without_ramp(pool), limit):
        sentence = f"The {name} was closed and opens slowly: its {amount} are not all open yet. {slot}"
        return Cause(CauseCode.POOL_RAMP, sentence, details)
    urgent = pool.settings.urgent
    if job.priority > urgent and _is_admitted(replace(job, priority=urgent), need, pool, limit):
        sentence = (
            f"What is left of the {amount} of the {name} is held back for priorities up to {urgent}, and the "
            f"job has {job.priority}. {slot}"
        )
        return Cause(CauseCode.POOL_RESERVED_SHARE, sentence, {**details, "urgent": urgent})
    if isinstance(limit.per, Calendar) and _has_free_units(pool, limit, units):
        sentence = (
            f"The {name} has enough left of its {amount}, but takes nothing around the turn of the "
            f"{limit.per.every} in {limit.per.zone}: a call could count on either side of it. {slot}"
        )
        return Cause(CauseCode.POOL_TURN, sentence, details)
    sentence = (
        f"The {name} allows {amount}, and not enough of it is free for the {units:g} the job needs. {slot}"
        f"{_override_text(_override_of_limit(pool, limit), times)}"
    )
    return Cause(CauseCode.POOL_LIMIT, sentence, details)


def _without_ramp(pool: PoolOutlook) -> PoolOutlook:
    return replace(
        pool, account=replace(pool.account, breaker=replace(pool.account.breaker, ramp=None, cap=None))
    )


def _is_admitted(job: Job, need: Need, pool: PoolOutlook, limit: Limit) -> bool:
    return not isinstance(_ask_pool(job, need, pool, replace(pool.settings, limits=(limit,))), UnitDenial)


def _has_free_units(pool: PoolOutlook, limit: Limit, units: float) -> bool:
    """True if the limit's window has `units` units free. All other reasons to wait are ignored."""
    settings = replace(pool.settings, limits=(limit,))
    (held,) = pool_with_learned_limits(settings, pool.account, pool.now).limits
    return pool.account.state.counted(held, pool.now, settings.guards) + units <= held.amount + TOLERANCE


def _ask_pool(job: Job, need: Need, pool: PoolOutlook, settings: PoolSettings) -> UnitGrant | UnitDenial:
    return request_units(settings, pool.account, UnitRequest(job.id, need.units, job.priority), pool.now)


def _override_of_limit(pool: PoolOutlook, limit: Limit) -> Override[LimitChanges] | None:
    """Returns the override that sets the amount of this limit: that of the key, else that of the pool."""
    for stored in (pool.account.override, pool.override):
        override = override_in_force(stored, pool.now.wall)
        if override is not None and limit.name in override.changes.amounts:
            return override
    return None


def _override_text(override: Override[LimitChanges] | None, times: TimeFormatter) -> str:
    if override is None:
        return ""
    end = "" if override.until is None else f", which ends {times.in_future(override.until)}"
    return f" It is an override by {override.by}{end}."


def _pool_text(need: Need) -> str:
    return f"pool {need.pool!r}" + (f" for {need.key!r}" if need.key is not None else "")


def _pool_details(need: Need, **facts: Any) -> dict[str, Any]:
    return {"pool": need.pool, "key": need.key, **facts}
