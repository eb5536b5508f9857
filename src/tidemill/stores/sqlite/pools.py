"""Declares, overrides, closes, opens and lists pools; reserves units for running jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from tidemill.contract.pools import PoolMinute, PoolView, limit_views
from tidemill.core import accounts, key_overrides, pool_statistics, reservations
from tidemill.core import breaker as breakers
from tidemill.core import ledger as core_ledger
from tidemill.core.accounts import Account, OperatorClosure
from tidemill.core.batch_start import single_call_needs
from tidemill.core.claims import is_current
from tidemill.core.feedback import Observation, UsageReport
from tidemill.core.jobs import Job, NewJob
from tidemill.core.late_calls import Departure
from tidemill.core.ledger import AccountKey, ClaimDenial
from tidemill.core.needs import Need, combine_needs
from tidemill.core.overrides import OverrideEdit, override_in_force, problem_with_operator_mark
from tidemill.core.pool_statistics import PoolChange
from tidemill.core.pools import (
    LimitChanges,
    PoolSettings,
    problem_with_declaration,
    problem_with_key,
    surviving_limits,
    undeclared_message,
)
from tidemill.core.windows import Instant
from tidemill.errors import ConfigurationError
from tidemill.stores.sqlite.ledger import ACCOUNTS, RESERVATIONS, account_of, pool_minute_of, reservation_of
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.settings_cache import POOLS, PoolRow, pool_row
from tidemill.stores.sqlite.transaction import SqliteTransaction


def declare_pools(transaction: SqliteTransaction, pools: Mapping[str, PoolSettings]) -> None:
    """Stores the declared settings of pools (P1). Raises ConfigurationError if a declaration is invalid."""
    for name, settings in pools.items():
        before = transaction.ledger.pool(name)
        declared = None if before is None else before.declared
        if problem := problem_with_declaration(name, settings, declared):
            raise ConfigurationError(f"pool {name!r}: {problem}")
        if before is not None and before.declared == settings:
            continue
        if before is not None:
            _keep_running_windows(transaction, name, surviving_limits(before.declared, settings))
        transaction.execute(POOLS.declare, (name, text_of(settings)))
        transaction.ledger.pool_changed(name)


def _keep_running_windows(transaction: SqliteTransaction, pool: str, names: frozenset[str]) -> None:
    ledger = transaction.ledger
    for (key,) in transaction.execute(ACCOUNTS.keys, (pool,)).fetchall():
        if known := ledger.load((pool, key or None)):
            ledger.save((pool, key or None), accounts.redeclare_account(known[1], names))
    for *row_key, text in transaction.execute(RESERVATIONS.entered, (pool,)).fetchall():
        reservation = reservations.redeclare_reservation(reservation_of(text), names)
        transaction.execute(RESERVATIONS.enter, (text_of(reservation), *row_key))


def override_pool(
    transaction: SqliteTransaction, account_key: AccountKey, edit: OverrideEdit[LimitChanges]
) -> None:
    """Replaces the override of a pool, or of one key of it, with the result of `edit`. `edit` gets the
    current override and the wall time (P2, P22, P23)."""
    pool, key = account_key
    if key is not None:
        _override_key(transaction, account_key, edit)
        return
    row = _declared(transaction, pool)
    override = edit(row.override, transaction.now)
    if override is not None and (problem := override.problem(row.declared)):
        raise ConfigurationError(f"pool {pool!r}: {problem}")
    transaction.execute(POOLS.override, (None if override is None else text_of(override), pool))
    transaction.ledger.pool_changed(pool)


def _override_key(
    transaction: SqliteTransaction, account_key: AccountKey, edit: OverrideEdit[LimitChanges]
) -> None:
    _check_key(transaction, account_key)
    if known := transaction.ledger.load(account_key):
        override = edit(known[1].override, transaction.now)
        declared = _declared(transaction, account_key[0]).declared
        if override is not None and (problem := override.problem(declared)):
            raise ConfigurationError(f"pool {account_key[0]!r}: {problem}")
        if override != known[1].override:
            transaction.ledger.change_key(account_key, key_overrides.set_key_override(known[1], override))


def close_pool(
    transaction: SqliteTransaction, account: AccountKey, *, until: float | None, by: str, reason: str | None
) -> None:
    """Closes a pool, or one key of it, for the operator `by` (P5). `until`: the wall time when the closure
    ends; None means until an operator opens the pool."""
    _check_key(transaction, account)
    if problem := problem_with_operator_mark(by, reason, until):
        raise ConfigurationError(f"pool {account[0]!r}: {problem}")
    mark = OperatorClosure(by=by, since=transaction.now, until=until, reason=reason)
    if known := transaction.ledger.load(account):
        transaction.ledger.save(account, accounts.close_account(known[1], mark))


def open_pool(transaction: SqliteTransaction, account: AccountKey) -> None:
    """Ends all closures of a pool, or of one key of it (P6)."""
    _check_key(transaction, account)
    if known := transaction.ledger.load(account):
        transaction.ledger.save(account, accounts.open_account(known[1]))


def observe(
    transaction: SqliteTransaction, observations: Sequence[Observation], chance: Callable[[], float]
) -> tuple[PoolChange, ...]:
    """Applies observations from providers' answers, such as a refusal, to the pools. Returns the resulting
    changes of pools (P4). `chance`: returns a random number."""
    ledger = transaction.ledger
    core_ledger.settle_reservations(
        ledger, (), UsageReport(observations=tuple(observations)), "", ledger.now, chance
    )
    return transaction.take_pool_changes()


def reserve(  # noqa: PLR0917 - a claim is named by three values
    transaction: SqliteTransaction,
    job: str,
    fence: int,
    claim: int,
    need: Need,
    departure: Departure | None = None,
) -> float | None:
    """Reserves more units for a running job (P3). Returns None if the units were reserved, else the seconds
    to wait; infinite if the claim is not current. `departure`: the request is sent now, so its units count
    even if they are not free (P21)."""
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
    answer = core_ledger.reserve_all(ledger, job, running.priority, (need,), ledger.now)
    if isinstance(answer, ClaimDenial):
        return answer.denied.wait
    ledger.hold((job, fence, claim), running.worker or "", answer)
    return None


def problem_with(transaction: SqliteTransaction, need: Need) -> str | None:
    """Returns a sentence that says why a need can never be met; None if it can (P10)."""
    row = transaction.ledger.pool(need.pool)
    if row is None:
        return need.problem(None, None)
    problem = need.problem(row.declared, row.in_force(transaction.now))
    if problem is None or need.key is None or not row.declared.keyed:
        return problem
    return need.problem(row.declared, transaction.ledger.peek_account(row, (need.pool, need.key))[0])


def problem_with_waiting(transaction: SqliteTransaction, job: Job, deferred: tuple[Need, ...]) -> str | None:
    """Returns a sentence that says why the pools can never admit the waiting job; None if they can (P18).
    `deferred`: units that the handler requested and did not get."""
    problems = (problem_with(transaction, need) for need in combine_needs(job.needs, deferred))
    return next((problem for problem in problems if problem), None)


def problem_with_needs(transaction: SqliteTransaction, jobs: Sequence[NewJob]) -> str | None:
    for job in jobs:
        for need in single_call_needs(job):
            if problem := problem_with(transaction, need):
                return f"{problem} (job {job.id!r})"
    return None


def _declared(transaction: SqliteTransaction, pool: str) -> PoolRow:
    row = transaction.ledger.pool(pool)
    if row is None:
        names = (name for name, *_ in transaction.execute(POOLS.all))
        raise ConfigurationError(f"pool {pool!r}: {undeclared_message(names)}")
    return row


def _check_key(transaction: SqliteTransaction, account: AccountKey) -> None:
    pool, key = account
    if problem := problem_with_key(_declared(transaction, pool).declared, key):
        raise ConfigurationError(f"pool {pool!r}: {problem}")


def list_pools(transaction: SqliteTransaction) -> list[PoolView]:
    """Returns all pools. For a pool with keys the list also has an entry for each key that is closed, has
    used units, or has reservations (P7)."""
    found: list[PoolView] = []
    for name, *texts in transaction.execute(POOLS.all).fetchall():
        found += _views(transaction, name, pool_row(*texts))
    return found


def pool_history(transaction: SqliteTransaction, pool: str, since: float) -> list[PoolMinute]:
    """Returns the history of a pool, one entry per minute, oldest first (P8). It starts with the minute that
    contains the wall time `since`."""
    found: list[PoolMinute] = []
    for minute, *row in transaction.execute(POOLS.minutes, (pool, int(since // 60))):
        entry = pool_minute_of(*row)
        at = minute * 60.0
        found.append(PoolMinute(at=at, calls=entry.calls, units=entry.units, refusals=entry.refusals))
    return found


def delete_unused_accounts(transaction: SqliteTransaction, limit: int) -> None:
    """Deletes the accounts of pool keys that were unused for 60 s, if nothing is reserved, used or closed in
    them. Examines at most `limit` accounts."""
    ledger, since = transaction.ledger, transaction.now - pool_statistics.UNUSED_KEY_SECONDS
    for pool, key in transaction.execute(ACCOUNTS.unused_accounts, (since, limit)).fetchall():
        row, account = ledger.pool(pool), (pool, key)
        at_rest = row is None or pool_statistics.is_at_rest(*ledger.peek_account(row, account), ledger.now)
        if at_rest and not ledger.reservations(account):
            transaction.execute(ACCOUNTS.delete, (pool, key))
            ledger.forget(account)
        else:
            transaction.execute(ACCOUNTS.touch, (transaction.now, pool, key))


def _views(transaction: SqliteTransaction, name: str, row: PoolRow) -> Iterator[PoolView]:
    ledger = transaction.ledger
    reserved = dict(transaction.execute(RESERVATIONS.of_pool, (name,)).fetchall())
    stored = {key: account_of(text) for key, text in transaction.execute(ACCOUNTS.of_pool, (name,))}
    for key in sorted({""} | stored.keys()):
        settings, account = ledger.as_of_now(row, stored.get(key, Account()))
        if not key or reserved.get(key) or pool_statistics.is_busy(settings, account, ledger.now):
            yield _view(name, key, row, settings, account, reserved.get(key, 0), ledger.now)


def _view(  # noqa: PLR0917 - a row with its context
    name: str,
    key: str,
    row: PoolRow,
    settings: PoolSettings,
    account: Account,
    reservations: int,
    now: Instant,
) -> PoolView:
    known = breakers.drop_expired_closures(account.breaker, now)
    return PoolView(
        name=name,
        key=key or None,
        declared=row.declared,
        override=override_in_force(row.override, now.wall),
        key_override=override_in_force(account.override, now.wall),
        limits=limit_views(row.declared, settings, account, now),
        closures=known.closures,
        closed=None if account.closed is None or not account.closed.holds(now.wall) else account.closed,
        reservations=reservations,
        external_usage=pool_statistics.external_units(settings, account, now),
        ramp=breakers.ramp_share(settings, account.breaker, now),
        account=account,
    )
