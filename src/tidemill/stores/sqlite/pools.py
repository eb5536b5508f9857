"""Declaring, overriding, closing, opening and watching pools; units for a job that runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tidemill.core import accounts, reserving
from tidemill.core import ledger as books
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
from tidemill.errors import ConfigurationError
from tidemill.stores.sqlite.ledger import ACCOUNTS, POOLS, RESERVATIONS, PoolRow, reservation_of
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.transaction import Transaction


def declare(transaction: Transaction, pools: Mapping[str, PoolSettings]) -> None:
    """P1."""
    for name, settings in pools.items():
        before = transaction.ledger.pool(name)
        declared = None if before is None else before.declared
        if problem := problem_with_declaration(name, settings, declared):
            raise ConfigurationError(f"pool {name!r}: {problem}")
        if before is not None and before.declared == settings:
            continue
        if before is not None:
            _keep_what_goes_on(transaction, name, going_on(before.declared, settings))
        transaction.execute(POOLS.declare, (name, text_of(settings)))
        transaction.ledger.pool_changed(name)


def _keep_what_goes_on(transaction: Transaction, pool: str, names: frozenset[str]) -> None:
    ledger = transaction.ledger
    for (key,) in transaction.execute(ACCOUNTS.keys, (pool,)).fetchall():
        if known := ledger.load((pool, key or None)):
            ledger.save((pool, key or None), accounts.redeclared(known[1], names))
    for *which, text in transaction.execute(RESERVATIONS.entered, (pool,)).fetchall():
        kept = reserving.redeclared(reservation_of(text), names)
        transaction.execute(RESERVATIONS.enter, (text_of(kept), *which))


def override(
    transaction: Transaction,
    pool: str,
    changes: PoolChanges | None,
    *,
    by: str,
    reason: str | None,
    until: float | None,
) -> None:
    """P2."""
    row = _declared(transaction, pool)
    problem = problem_with_mark(by, reason, until) or (changes and changes.problem(row.declared))
    if problem:
        raise ConfigurationError(f"pool {pool!r}: {problem}")
    new = None
    if changes is not None:
        new = PoolOverride(changes=changes, by=by, reason=reason, since=transaction.now, until=until)
    transaction.execute(POOLS.override, (None if new is None else text_of(new), pool))
    transaction.ledger.pool_changed(pool)


def close(
    transaction: Transaction, place: PLACE, *, until: float | None, by: str, reason: str | None
) -> None:
    """P5."""
    _check_place(transaction, place)
    if problem := problem_with_mark(by, reason, until):
        raise ConfigurationError(f"pool {place[0]!r}: {problem}")
    mark = HandClosure(by=by, since=transaction.now, until=until, reason=reason)
    if known := transaction.ledger.load(place):
        transaction.ledger.save(place, accounts.closed(known[1], mark))


def open_again(transaction: Transaction, place: PLACE) -> None:
    """P6."""
    _check_place(transaction, place)
    if known := transaction.ledger.load(place):
        transaction.ledger.save(place, accounts.opened(known[1]))


def observe(
    transaction: Transaction, observations: Sequence[Observation], chance: Callable[[], float]
) -> tuple[PoolNews, ...]:
    """P4."""
    ledger = transaction.ledger
    books.conclude(ledger, (), Spent(observations=tuple(observations)), "", ledger.now, chance)
    return transaction.take_news()


def reserve(  # noqa: PLR0917 - a claim is named by three values
    transaction: Transaction, job: str, fence: int, claim: int, need: Need, departure: Departure | None = None
) -> float | None:
    """P3, P21."""
    ledger = transaction.ledger
    problem = None if departure else problem_with(transaction, need)
    if problem:
        raise ConfigurationError(problem)
    running = transaction.by_id([job]).get(job)
    if running is None or not is_current(running, fence, claim):
        return math.inf
    if departure is not None:
        ledger.depart((job, fence, claim), running.worker or "", need, departure)
        return None
    exchanged = ledger.exchange((job, fence, claim), running.worker or "", need)
    if exchanged is not False:
        return None if exchanged is True else exchanged
    answer = books.ask_all(ledger, job, running.priority, (need,), ledger.now)
    if isinstance(answer, Stopped):
        return answer.denied.wait
    ledger.hold((job, fence, claim), running.worker or "", answer)
    return None


def problem_with(transaction: Transaction, need: Need) -> str | None:
    """P10."""
    row = transaction.ledger.pool(need.pool)
    if row is None:
        return need.problem(None, None)
    return need.problem(row.declared, row.in_force(transaction.now))


def problem_with_waiting(transaction: Transaction, job: Job, extra: tuple[Need, ...]) -> str | None:
    """P18."""
    problems = (problem_with(transaction, need) for need in together(job.needs, extra))
    return next((problem for problem in problems if problem), None)


def problem_with_needs(transaction: Transaction, jobs: Sequence[NewJob]) -> str | None:
    for job in jobs:
        for need in needs_alone(job):
            if problem := problem_with(transaction, need):
                return f"{problem} (job {job.id!r})"
    return None


def _declared(transaction: Transaction, pool: str) -> PoolRow:
    row = transaction.ledger.pool(pool)
    if row is None:
        names = (name for name, *_ in transaction.execute(POOLS.all))
        raise ConfigurationError(f"pool {pool!r}: {undeclared(names)}")
    return row


def _check_place(transaction: Transaction, place: PLACE) -> None:
    pool, key = place
    if problem := problem_with_place(_declared(transaction, pool).declared, key):
        raise ConfigurationError(f"pool {pool!r}: {problem}")
