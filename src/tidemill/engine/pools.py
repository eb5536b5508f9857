"""Store methods for pools: settings, views, and units that are reserved or observed outside of a claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tidemill.contract.pools import PoolMinute, PoolView, limit_views
from tidemill.core import accounts, breaker, key_overrides, ledger, pool_statistics, reservations
from tidemill.core.accounts import OperatorClosure
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
from tidemill.engine.ledger import PoolLedger, PoolRecord
from tidemill.engine.records import Records
from tidemill.errors import ConfigurationError


def declare_pools(records: Records, pools: Mapping[str, PoolSettings]) -> None:
    """Stores the pools that code declares, by name (P1). If one pool is invalid, ConfigurationError is raised
    and nothing is written."""
    for name, settings in pools.items():
        known = records.pool_ledger.pools.get(name)
        before = None if known is None else known.declared
        if problem := problem_with_declaration(name, settings, before):
            raise ConfigurationError(f"pool {name!r}: {problem}")
    for name, settings in pools.items():
        _declare_pool(records.pool_ledger, name, settings)


def _declare_pool(pool_ledger: PoolLedger, name: str, settings: PoolSettings) -> None:
    known = pool_ledger.pools.get(name)
    if known is None:
        pool_ledger.pools[name] = PoolRecord(settings)
        return
    if known.declared == settings:
        return
    limits = surviving_limits(known.declared, settings)
    known.declared = settings
    for account_key in pool_ledger.account_keys_of(name):
        pool_ledger.save(account_key, accounts.redeclare_account(pool_ledger.accounts[account_key], limits))
    for claim in pool_ledger.claims_of_pool(name):
        held = pool_ledger.reserved[claim]
        for at, reserved in enumerate(held):
            if reserved.pool == name:
                reservation = reservations.redeclare_reservation(reserved.reservation, limits)
                held[at] = replace(reserved, reservation=reservation)
    pool_ledger.reopen(name)


def override_pool(records: Records, account_key: AccountKey, edit: OverrideEdit[LimitChanges]) -> None:
    """Replaces the override of a pool, or of one key of it, with the result of `edit` (P2, P22, P23). `edit`
    gets the current override and the wall time.

    Raises ConfigurationError if the pool is not declared or the result is invalid."""
    name, key = account_key
    if key is not None:
        _override_key(records, account_key, edit)
        return
    pool = _declared_pool(records.pool_ledger, name)
    override = edit(pool.override, records.clock.wall())
    if override is not None and (problem := override.problem(pool.declared)):
        raise ConfigurationError(f"pool {name!r}: {problem}")
    pool.override = override
    records.pool_ledger.reopen(name)


def _override_key(records: Records, account_key: AccountKey, edit: OverrideEdit[LimitChanges]) -> None:
    pool_ledger = records.pool_ledger
    account = _load_account(pool_ledger, account_key)
    override = edit(account.override, records.clock.wall())
    if override is not None and (problem := override.problem(pool_ledger.pools[account_key[0]].declared)):
        raise ConfigurationError(f"pool {account_key[0]!r}: {problem}")
    if override != account.override:
        pool_ledger.change_key(account_key, key_overrides.set_key_override(account, override))


def reserve_units(  # noqa: PLR0917 - a claim is named by three values
    records: Records, job_id: str, fence: int, claim: int, need: Need, departure: Departure | None = None
) -> float | None:
    """Reserves more units for a running job (P3). Returns None if done, else the seconds to wait (may be
    infinite). With `departure` it only records a request that was sent late, or in addition to the reserved
    call (P21)."""
    pool_ledger = records.pool_ledger
    problem = None if departure else problem_with_need(pool_ledger, need)
    if problem:
        raise ConfigurationError(problem)
    job = records.jobs.get(job_id)
    if job is None or not is_current(job, fence, claim):
        return math.inf
    if departure is not None:
        pool_ledger.record_departure((job_id, fence, claim), need, departure)
        return None
    exchanged = pool_ledger.exchange_deferred((job_id, fence, claim), need)
    if exchanged is not False:
        return None if exchanged is True else exchanged
    answer = ledger.reserve_all(pool_ledger, job.id, job.priority, (need,), pool_ledger.now())
    if isinstance(answer, ClaimDenial):
        return answer.denied.wait
    pool_ledger.add_reservations((job_id, fence, claim), answer)
    return None


def observe(records: Records, observations: Sequence[Observation]) -> tuple[PoolChange, ...]:
    """Applies what a provider's answers said about pools, when no job is settled. Returns the changes of the
    pools' states (P4)."""
    records.pool_ledger.take_pool_changes()
    settle_claim(records, (), UsageReport(observations=tuple(observations)), "")
    return records.pool_ledger.take_pool_changes()


def settle_claim(
    records: Records, ended: Sequence[ledger.HeldReservation], spent: UsageReport | None, job: str
) -> bool:
    """Ends the reservations `ended` of the job's claim and applies the usage report `spent` (P13, P16). True
    if a refusal costs the job one of its attempts (P17)."""
    return ledger.settle_reservations(
        records.pool_ledger, ended, spent, job, records.pool_ledger.now(), records.entropy.chance
    )


def close_pool(
    records: Records, account_key: AccountKey, until: float | None, by: str, reason: str | None
) -> None:
    """Closes a pool, or one key of it, for an operator until the wall time `until`; None means until it is
    opened (P5)."""
    pool_ledger = records.pool_ledger
    account = _load_account(pool_ledger, account_key)
    if problem := problem_with_operator_mark(by, reason, until):
        raise ConfigurationError(f"pool {account_key[0]!r}: {problem}")
    mark = OperatorClosure(by=by, since=records.clock.wall(), until=until, reason=reason)
    pool_ledger.save(account_key, accounts.close_account(account, mark))


def open_pool(records: Records, account_key: AccountKey) -> None:
    """Opens a pool, or one key of it: ends all its closures and forgets its learned limits (P6)."""
    pool_ledger = records.pool_ledger
    pool_ledger.save(account_key, accounts.open_account(_load_account(pool_ledger, account_key)))


def list_pools(records: Records) -> list[PoolView]:
    """Returns the state of all pools, sorted by name and key (P7)."""
    pool_ledger = records.pool_ledger
    keys: dict[str, list[str]] = {name: [] for name in sorted(pool_ledger.pools)}
    for pool, key in pool_ledger.accounts:
        if key is not None and pool in keys:
            keys[pool].append(key)
    views: list[PoolView] = []
    for name, of_pool in keys.items():
        views.append(_pool_view(pool_ledger, (name, None)))
        busy = [key for key in sorted(of_pool) if _is_busy(pool_ledger, (name, key))]
        views += [_pool_view(pool_ledger, (name, key)) for key in busy]
    return views


def pool_history(records: Records, pool: str, since: float) -> list[PoolMinute]:
    """Returns the counters of a pool by minute, from the wall time `since` on (P8)."""
    minutes = records.pool_ledger.history.get(pool, {})
    return [
        PoolMinute(at=at, calls=what.calls, units=what.units, refusals=what.refusals)
        for at, what in sorted(minutes.items())
        if at >= since // 60 * 60
    ]


def problem_with_needs(records: Records, jobs: Sequence[NewJob]) -> str | None:
    """Returns why the pools can never meet the needs of one of the jobs (P10); None if they can."""
    for job in jobs:
        for need in single_call_needs(job):
            if problem := problem_with_need(records.pool_ledger, need):
                return f"{problem} (job {job.id!r})"
    return None


def problem_with_deferred(records: Records, job: Job, deferred: tuple[Need, ...]) -> str | None:
    """Returns an error text if the job can never get all its units (P18); None if it can. `deferred`: the
    units that its handler requested while it ran."""
    problems = (problem_with_need(records.pool_ledger, need) for need in combine_needs(job.needs, deferred))
    return next((problem for problem in problems if problem), None)


def problem_with_need(pool_ledger: PoolLedger, need: Need) -> str | None:
    pool = pool_ledger.pools.get(need.pool)
    if pool is None:
        return need.problem(None, None)
    problem = need.problem(pool.declared, pool_ledger.in_force(pool))
    if problem is None or need.key is None or not pool.declared.keyed:
        return problem
    # Only a call that the pool's own limits refuse needs the account, which another query loads.
    return need.problem(pool.declared, pool_ledger.peek_account(pool, (need.pool, need.key))[0])


def _declared_pool(pool_ledger: PoolLedger, name: str) -> PoolRecord:
    pool = pool_ledger.pools.get(name)
    if pool is None:
        raise ConfigurationError(f"pool {name!r}: {undeclared_message(pool_ledger.pool_names())}")
    return pool


def _load_account(pool_ledger: PoolLedger, account_key: AccountKey) -> accounts.Account:
    name, key = account_key
    if problem := problem_with_key(_declared_pool(pool_ledger, name).declared, key):
        raise ConfigurationError(f"pool {name!r}: {problem}")
    known = pool_ledger.load(account_key)
    return accounts.Account() if known is None else known[1]


def _is_busy(pool_ledger: PoolLedger, account_key: AccountKey) -> bool:
    known, now = pool_ledger.peek_account(pool_ledger.pools[account_key[0]], account_key), pool_ledger.now()
    return bool(pool_ledger.reservations(account_key)) or pool_statistics.is_busy(*known, now)


def _pool_view(pool_ledger: PoolLedger, account_key: AccountKey) -> PoolView:
    name, key = account_key
    pool, now = pool_ledger.pools[name], pool_ledger.now()
    settings, account = pool_ledger.peek_account(pool, account_key)
    by_hand = account.closed is not None and account.closed.holds(now.wall)
    return PoolView(
        name=name,
        key=key,
        declared=pool.declared,
        override=override_in_force(pool.override, now.wall),
        key_override=override_in_force(account.override, now.wall),
        limits=limit_views(pool.declared, settings, account, now),
        closures=breaker.drop_expired_closures(account.breaker, now).closures,
        closed=account.closed if by_hand else None,
        reservations=pool_ledger.reservations(account_key),
        external_usage=pool_statistics.external_units(settings, account, now),
        ramp=breaker.ramp_share(settings, account.breaker, now),
        account=account,
    )
