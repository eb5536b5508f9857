"""What is set on pools, what is known of them, and what is taken or told outside a claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tidemill.contract.pools import LimitView, PoolMinute, PoolView
from tidemill.core import accounts, breaker, learning, ledger, reserving, usage
from tidemill.core.accounts import HandClosure
from tidemill.core.calls import needs_alone
from tidemill.core.claims import is_current
from tidemill.core.departures import Departure
from tidemill.core.job import Job, NewJob
from tidemill.core.ledger import PLACE, Stopped
from tidemill.core.needs import Need, together
from tidemill.core.pool_news import PoolNews
from tidemill.core.pools import (
    PoolChanges,
    PoolOverride,
    PoolSettings,
    going_on,
    problem_with_declaration,
    problem_with_mark,
    problem_with_place,
    undeclared,
)
from tidemill.core.spending import Observation, Spent
from tidemill.engine.ledger import Books, Pool
from tidemill.engine.records import Records
from tidemill.errors import ConfigurationError


def declare(records: Records, pools: Mapping[str, PoolSettings]) -> None:
    """P1. All or nothing: a setting that cannot work is told before anything is written."""
    for name, settings in pools.items():
        known = records.books.pools.get(name)
        before = None if known is None else known.declared
        if problem := problem_with_declaration(name, settings, before):
            raise ConfigurationError(f"pool {name!r}: {problem}")
    for name, settings in pools.items():
        _declare(records.books, name, settings)


def _declare(books: Books, name: str, settings: PoolSettings) -> None:
    known = books.pools.get(name)
    if known is None:
        books.pools[name] = Pool(settings)
        return
    if known.declared == settings:
        return
    names = going_on(known.declared, settings)
    known.declared = settings
    for place in books.places_of(name):
        books.save(place, accounts.redeclared(books.accounts[place], names))
    for claim in books.claims_on(name):
        held = books.reserved[claim]
        for at, reserved in enumerate(held):
            if reserved.pool == name:
                kept = reserving.redeclared(reserved.reservation, names)
                held[at] = replace(reserved, reservation=kept)
    books.reopen(name)


def override(
    records: Records,
    name: str,
    changes: PoolChanges | None,
    *,
    by: str,
    reason: str | None,
    until: float | None,
) -> None:
    """P2."""
    pool = _known(records.books, name)
    problem = problem_with_mark(by, reason, until)
    if problem is None and changes is not None:
        problem = changes.problem(pool.declared)
    if problem:
        raise ConfigurationError(f"pool {name!r}: {problem}")
    pool.override = (
        None
        if changes is None
        else PoolOverride(changes=changes, by=by, reason=reason, since=records.clock.wall(), until=until)
    )
    records.books.reopen(name)


def reserve(  # noqa: PLR0917 - a claim is named by three values
    records: Records, job_id: str, fence: int, claim: int, need: Need, departure: Departure | None = None
) -> float | None:
    """P3, P21."""
    books = records.books
    problem = None if departure else problem_with_need(books, need)
    if problem:
        raise ConfigurationError(problem)
    job = records.jobs.get(job_id)
    if job is None or not is_current(job, fence, claim):
        return math.inf
    if departure is not None:
        books.depart((job_id, fence, claim), need, departure)
        return None
    exchanged = books.exchange((job_id, fence, claim), need)
    if exchanged is not False:
        return None if exchanged is True else exchanged
    answer = ledger.ask_all(books, job.id, job.priority, (need,), books.now())
    if isinstance(answer, Stopped):
        return answer.denied.wait
    books.hold((job_id, fence, claim), answer)
    return None


def observe(records: Records, observations: Sequence[Observation]) -> tuple[PoolNews, ...]:
    """P4."""
    records.books.take_news()
    conclude(records, (), Spent(observations=tuple(observations)), "")
    return records.books.take_news()


def conclude(records: Records, ended: Sequence[ledger.Reserved], spent: Spent | None, job: str) -> bool:
    """P13, P16, P17."""
    return ledger.conclude(records.books, ended, spent, job, records.books.now(), records.entropy.chance)


def close(records: Records, place: PLACE, until: float | None, by: str, reason: str | None) -> None:
    """P5."""
    books = records.books
    account = _account(books, place)
    if problem := problem_with_mark(by, reason, until):
        raise ConfigurationError(f"pool {place[0]!r}: {problem}")
    mark = HandClosure(by=by, since=records.clock.wall(), until=until, reason=reason)
    books.save(place, accounts.closed(account, mark))


def open_again(records: Records, place: PLACE) -> None:
    """P6."""
    books = records.books
    books.save(place, accounts.opened(_account(books, place)))


def pools(records: Records) -> list[PoolView]:
    """P7, by name and key."""
    books = records.books
    keys: dict[str, list[str]] = {name: [] for name in sorted(books.pools)}
    for pool, key in books.accounts:
        if key is not None and pool in keys:
            keys[pool].append(key)
    views: list[PoolView] = []
    for name, of_pool in keys.items():
        views.append(_view(books, (name, None)))
        views += [_view(books, (name, key)) for key in sorted(of_pool) if _is_busy(books, (name, key))]
    return views


def history(records: Records, pool: str, since: float) -> list[PoolMinute]:
    """P8."""
    minutes = records.books.history.get(pool, {})
    return [
        PoolMinute(at=at, calls=what.calls, units=what.units, refusals=what.refusals)
        for at, what in sorted(minutes.items())
        if at >= since // 60 * 60
    ]


def problem_with_needs(records: Records, jobs: Sequence[NewJob]) -> str | None:
    """P10."""
    for job in jobs:
        for need in needs_alone(job):
            if problem := problem_with_need(records.books, need):
                return f"{problem} (job {job.id!r})"
    return None


def problem_with_waiting(records: Records, job: Job, extra: tuple[Need, ...]) -> str | None:
    """P18."""
    problems = (problem_with_need(records.books, need) for need in together(job.needs, extra))
    return next((problem for problem in problems if problem), None)


def problem_with_need(books: Books, need: Need) -> str | None:
    pool = books.pools.get(need.pool)
    return need.problem(None, None) if pool is None else need.problem(pool.declared, books.in_force(pool))


def _known(books: Books, name: str) -> Pool:
    pool = books.pools.get(name)
    if pool is None:
        raise ConfigurationError(f"pool {name!r}: {undeclared(books.names())}")
    return pool


def _account(books: Books, place: PLACE) -> accounts.Account:
    name, key = place
    if problem := problem_with_place(_known(books, name).declared, key):
        raise ConfigurationError(f"pool {name!r}: {problem}")
    known = books.load(place)
    return accounts.Account() if known is None else known[1]


def _is_busy(books: Books, place: PLACE) -> bool:
    known, now = books.look_at(books.pools[place[0]], place), books.now()
    return bool(books.reservations(place)) or usage.is_closed(known[1], now) or usage.is_used(*known, now)


def _view(books: Books, place: PLACE) -> PoolView:
    name, key = place
    pool, now = books.pools[name], books.now()
    settings, account = books.look_at(pool, place)
    overridden = pool.override is not None and pool.override.holds(now.wall)
    by_hand = account.closed is not None and account.closed.holds(now.wall)
    return PoolView(
        name=name,
        key=key,
        declared=pool.declared,
        override=pool.override if overridden else None,
        limits=_limits(pool.declared, settings, account, books),
        closures=breaker.tidied(account.breaker, now).closures,
        closed=account.closed if by_hand else None,
        reservations=books.reservations(place),
        foreign=usage.foreign(settings, account, now),
        ramp=breaker.ramp_share(settings, account.breaker, now),
        account=account,
    )


def _limits(
    declared: PoolSettings, in_force: PoolSettings, account: accounts.Account, books: Books
) -> tuple[LimitView, ...]:
    now = books.now()
    return tuple(
        LimitView(
            name=limit.name,
            unit=limit.unit,
            amount=limit.amount,
            declared=by_code.amount,
            used=usage.used(in_force, account, limit, now),
            free_in=usage.free_in(in_force, account, limit, now),
            learned=learning.in_force(account.learned, limit, now.wall),
        )
        for limit, by_code in zip(in_force.limits, declared.limits, strict=True)
    )
