"""The part of the contract about pools: provider quotas that are used fully and never exceeded.

A claim reserves units from every pool that a job needs. `reserve` takes more units while the job runs. A
reservation belongs to one claim and ends once: by a settlement, by a reclaim, or when it expires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from tidemill.core import pool_statistics
from tidemill.core.accounts import Account, OperatorClosure
from tidemill.core.closures import Closure
from tidemill.core.feedback import Observation
from tidemill.core.late_calls import Departure
from tidemill.core.learned_limits import LearnedLimit, learned_limit_in_force
from tidemill.core.learned_spacings import LearnedSpacing, apply_spacings, spacing_in_force
from tidemill.core.needs import Need, Units
from tidemill.core.overrides import Override
from tidemill.core.pool_statistics import PoolChange
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.windows import Instant


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    """One limit of a pool, for display.

    - `amount`: the limit in force.
    - `declared`: the amount that code declares.
    - `used`: the units that count now; more than `amount` if the pool is in debt.
    - `free_in`: seconds until the whole limit is free again; None if unknown.
    - `learned`, `spacing`: the learned limit and spacing; None if nothing was learned."""

    name: str
    unit: str
    amount: float
    declared: float
    used: float
    free_in: float | None
    learned: LearnedLimit | None = None
    spacing: LearnedSpacing | None = None


def limit_views(
    declared: PoolSettings, in_force: PoolSettings, account: Account, now: Instant
) -> tuple[LimitView, ...]:
    """Returns the views of all limits of a pool or of one key. `in_force` has the amounts after overrides."""
    spaced = apply_spacings(in_force, in_force, account.spacings, now.wall)
    return tuple(
        LimitView(
            name=limit.name,
            unit=limit.unit,
            amount=limit.amount,
            declared=by_code.amount,
            used=pool_statistics.used_units(spaced, account, counted, now),
            free_in=pool_statistics.seconds_until_free(spaced, account, counted, now),
            learned=learned_limit_in_force(account.learned, limit, now.wall),
            spacing=spacing_in_force(account.spacings, limit, now.wall),
        )
        for limit, counted, by_code in zip(in_force.limits, spaced.limits, declared.limits, strict=True)
    )


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of one pool, or of one key of it, for display.

    - `override`: an operator's amounts for the whole pool.
    - `key_override`: an operator's amounts for this key, which win over `override` (P23).
    - `closures`: the closures that the breaker made.
    - `closed`: the closure that an operator made.
    - `reservations`: the number of open reservations.
    - `external_usage`: units that other programs used, by limit name.
    - `ramp`: the share of its amount that the slowest limit may use, 0 to 1; None without a ramp."""

    name: str
    key: str | None
    declared: PoolSettings
    override: Override[LimitChanges] | None
    key_override: Override[LimitChanges] | None
    limits: tuple[LimitView, ...]
    closures: tuple[Closure, ...]
    closed: OperatorClosure | None
    reservations: int
    external_usage: Units
    ramp: float | None
    account: Account


class PoolMinute(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a pool for one minute, all keys together.

    - `at`: the wall time at which the minute starts.
    - `calls`: the calls that ended.
    - `units`: the units that these calls used.
    - `refusals`: the provider's refusals by reason."""

    at: float
    calls: int
    units: Units
    refusals: dict[str, int]


class PoolStore(Protocol):
    """The methods for settings and accounts of pools. P10 to P20 are obligations of the methods for jobs.

    P10 Insert: a need that names an undeclared pool, or that the pool's limits could never admit
        (`PoolSettings.problem_with`), makes the group INVALID. The problem names pool and unit.
    P11 A claim reserves all units that a job needs in the same transaction (`core.accounts.request_units`),
        or leaves the job in its lane and takes nothing. The order of J31 holds among the jobs that their
        pools admit.
    P12 A pool that denies a request blocks the job's group; a pool with keys blocks only the job's lane
        (`core.lane_selection.BlockScope`). A blocked lane costs later claims nothing until its wait is over,
        the pool's revision changes, a more urgent job arrives, or the lane's first job leaves. The first job
        of every blocked group is tried at least once a second. A job that is larger than a lowered limit
        moves into its own lane (`core.needs.aside_lane`) and blocks no other job.
    P13 Settling ends the claim's reservations with the reported usage, or with all reserved units if none is
        reported. If no call was made, the units are released. A stale settlement does the same while the
        reservations exist (I6).
    P14 A reclaim ends the job's reservations, and their units count from now, because the call may still be
        made. The same holds for a running job that its worker does not list (J52). A cancelled job keeps its
        reservations until its holder settles it or the lease ends.
    P15 Freeing units or opening a pool sends a wake-up to the queues whose jobs wait for the pool. The end of
        a waiting job with a hold does the same (`core.ledger.release_holds`). `ClaimResult.next_due` includes
        the soonest end of a wait.
    P16 The observations of a settlement are applied in the same transaction, once. This also holds for a
        stale settlement while its reservations exist or were recounted (P14). A successful call may raise
        guessed limits (`core.learned_limits.raise_guesses`).
    P17 `core.ledger.settle_reservations` decides whether a refusal costs the job an attempt. If so, the
        answer is CHARGED, and the settlement's `charged` outcome, if given, applies. The decision on a call's
        first job applies to the jobs of the call that are settled after it in the same transaction. A call
        claimed before an overload closed the pool is not charged. `SettleResult` and `ClaimResult` list the
        pool changes once.
    P18 A job settled as `UnitWait` also waits for the units that its handler asked for. Its next claim
        reserves them apart from its needs (`core.late_calls.reserve_for_job`). When the handler makes its
        call, `reserve` reserves them again, in one transaction. Unused units return with the settlement. A
        job given back in its old position keeps its wait; any other outcome, and an operator's retry, drops
        it. A job that could never get all units fails (P10).
    P19 A counter in the job's first need says how often in a row the job was settled as an excused
        `JobRelease` (an error after a provider's refusal). An attempt that is charged or postponed, and an
        operator's retry, reset the counter to 0.
    P20 `ClaimResult.waited` is the number of seconds from the call of `claim` to the time from which its
        units count. The number is never too large. A repeated claim (J33) reports None.
    P24 A limit of one request per window may learn a spacing (`core.learned_spacings`). Refusals lengthen the
        spacing. Successful calls shorten it, a confirmed one at most once an hour. The spacing survives a
        restart, and its account is not pruned. Only calls claimed after its last change count."""

    async def declare_pools(self, pools: Mapping[str, PoolSettings]) -> None:
        """Stores the pools that code declares, by name.

        P1  Overrides, closures and usage stay (like Q1). A new limit starts unused. A limit whose amount
            changed keeps its usage, and what was learned about it is forgotten. A pool with keys cannot
            become a pool without keys, or the reverse."""
        ...

    async def override_pool(
        self,
        pool: str,
        changes: LimitChanges,
        *,
        key: str | None = None,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        """Adds an operator's amounts to the override of the pool, or of one key of it. `by` is the author.

        P2  Limits that `changes` does not name stay, as in Q2. The change takes effect with the next call of
            any store method, on every worker. The override ends by itself at `until` (wall time).
        P23 With `key`, the override belongs to one key of a pool with keys, by the rules of P2. It wins over
            the override of the pool, which wins over the declaration. What was learned about its limits is
            forgotten. An account with an override is not pruned. A need is valid (P10) if the limits of its
            key admit it."""
        ...

    async def clear_pool_override(
        self, pool: str, names: Sequence[str] = (), *, key: str | None = None
    ) -> None:
        """Removes the named limits, or all if `names` is empty, from the override of the pool or of one key.

        P22 The declared amounts apply again, by the rules of Q6. For a key, the pool's override applies again
            if there is one."""
        ...

    async def reserve(
        self, job: str, fence: int, claim: int, need: Need, departure: Departure | None = None
    ) -> float | None:
        """Reserves more units for a running job. With `departure`, records a late or an extra request.

        P3  Returns None if the units were reserved, else the seconds to wait. The wait is infinite if another
            call must end first, or if the claim is not current.
        P21 With `departure`, the request is made in any case: the store does not check whether the units fit,
            and returns None. LATE: the units of a reservation count from now instead, in one transaction. The
            store takes the pool's oldest reservation with the same units, else its oldest one. EXTRA: the
            units are taken in addition to the reservation, without another call in flight. A claim that is
            not current, or an unknown pool, changes nothing."""
        ...

    async def observe(self, observations: Sequence[Observation]) -> tuple[PoolChange, ...]:
        """Applies what a provider's answers said about pools, without a settlement. Returns the pool changes.

        P4  The observations have the same effect as in a settlement (P16)."""
        ...

    async def close_pool(
        self,
        pool: str,
        *,
        key: str | None = None,
        until: float | None = None,
        by: str,
        reason: str | None = None,
    ) -> None:
        """Closes a pool, or one key of it, until `until` (wall time), or until `open_pool` if `until` is
        None.

        P5  This closure is independent of the breaker. Only `open_pool` or its own end removes it."""
        ...

    async def open_pool(self, pool: str, *, key: str | None = None) -> None:
        """Opens a pool, or one key of it.

        P6  The closures of the breaker and of operators end, and learned limits are forgotten. The pool
            starts without a probe and without a ramp."""
        ...

    async def pools(self) -> list[PoolView]:
        """Returns the current state of all pools.

        P7  Every declared pool is listed. A pool with keys also has one entry for each key with used
            units, open reservations, a closure, an override or a learned spacing (P24)."""
        ...

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        """Returns one entry per minute since the wall time `since`; minutes without calls are left out.

        P8  The history is kept for HISTORY_SECONDS. A call counts in the minute in which its reservation was
            settled or recounted. A call that was not made does not count. Every reported refusal counts. An
            unknown pool has no minutes."""
        ...
