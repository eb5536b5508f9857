"""The ledger: how a claim or settlement changes the accounts of all pools that it needs. A store provides its
accounts as a `Ledger` for one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from tidemill.core import accounts, reservations
from tidemill.core.accounts import Account, UnitDenial
from tidemill.core.external_usage import CallFacts
from tidemill.core.feedback import UsageReport, share_usage
from tidemill.core.lane_selection import BlockScope
from tidemill.core.needs import LANE_SEPARATOR, Need, Units, is_aside_lane, shared_group
from tidemill.core.pool_statistics import (
    PoolChange,
    PoolHistoryEntry,
    compare_accounts,
    history_entry_of_call,
)
from tidemill.core.pools import PoolSettings, call_amount
from tidemill.core.reservations import Reservation, UnitRequest
from tidemill.core.windows import Instant

AccountKey = tuple[str, str | None]
"""The key of an account: a pool, and the pool's key if it has keys."""

GROUP_RETRY_SECONDS = 1.0
"""Seconds after which the head of a blocked group tries again in any case, so that no job depends on a lost
wake-up and a ramp is followed."""
LANE_RETRY_SECONDS = 60.0
"""Longer than for groups, because there may be many thousand lanes."""
ANY_LIMIT_KEY = LANE_SEPARATOR
"""Used as the key of a block that waits for other limits, which the end of a call cannot change."""


class Ledger(Protocol):
    """The accounts of a store during one transaction.

    - `load` returns the pool's settings in force and the refreshed account; None for an undeclared pool.
    - `reservations` returns the number of open reservations of an account.
    - `add_history` adds an entry to the pool's history (P8).
    - `tell` records a change of a pool, which the store method returns to its caller."""

    def load(self, account_key: AccountKey) -> tuple[PoolSettings, Account] | None: ...
    def save(self, account_key: AccountKey, account: Account) -> None: ...
    def reservations(self, account_key: AccountKey) -> int: ...
    def add_history(self, pool: str, entry: PoolHistoryEntry) -> None: ...
    def tell(self, change: PoolChange) -> None: ...


class HeldReservation(msgspec.Struct, frozen=True):
    """A reservation that one claim holds in one account.

    - `probe`: True if its call is the pool's probe.
    - `deferred`: True if the handler asked for the units in an earlier attempt and has not made the call."""

    pool: str
    key: str | None
    reservation: Reservation
    probe: bool = False
    deferred: bool = False

    @property
    def account_key(self) -> AccountKey:
        return self.pool, self.key


class ClaimDenial(msgspec.Struct, frozen=True):
    """The answer that a pool denied units to a claim. `need` is the first need that was denied. Only the
    account of that need has changed."""

    need: Need
    denied: UnitDenial

    def gate(self, lane: str) -> BlockScope:
        """Returns which jobs have to wait after this denial of a job in `lane`. A job that is larger than the
        limits in force blocks only itself."""
        if self.denied.never:
            return BlockScope.LANE_BLOCKED if is_aside_lane(lane) else BlockScope.ASIDE
        return BlockScope.GROUP_BLOCKED if self.need.key is None else BlockScope.LANE_BLOCKED


class LaneBlock(msgspec.Struct, frozen=True):
    """The reason why a claim skips one lane, or all lanes of a group, of a queue.

    - `until`: the boot-clock time when the pool is expected to admit the denied job.
    - `retry_at`: the boot-clock time when a claim tries again; it may be earlier than `until`.
    - `priority`: the priority of the denied job; more urgent jobs are not blocked.

    The block of a lane ends when the lane's next job changes. The block of a group ends with its time or is
    replaced by a new block. A store also drops a block when the account's revision or the pool's limits
    change."""

    pool: str
    key: str | None
    until: float
    retry_at: float
    priority: int

    @property
    def account_key(self) -> AccountKey:
        return self.pool, self.key

    def holds(self, boot: float) -> bool:
        return boot < self.retry_at


def reserve_all(  # noqa: PLR0917 - all needs of a job at once
    ledger: Ledger,
    job: str,
    priority: int,
    needs: Iterable[Need],
    now: Instant,
    lane: tuple[str, str] | None = None,
) -> tuple[HeldReservation, ...] | ClaimDenial:
    """Reserves the units of all needs, or none (P11). Returns the reservations, or the first denial. If the
    job is the next one of its lane, `lane` is the pair of queue and lane name."""
    taken: list[tuple[HeldReservation, Account, Account]] = []
    for need in sorted(needs, key=lambda need: need.key is not None):
        account_key = (need.pool, need.key)
        known = ledger.load(account_key)
        if known is None:
            continue
        request = UnitRequest(job, need.units, priority, "" if lane is None else hold_scope(*lane, need))
        answer = accounts.request_units(known[0], known[1], request, now)
        if isinstance(answer, UnitDenial):
            save_account(ledger, account_key, job, known[1], answer.account)
            return ClaimDenial(need, answer)
        reserved = HeldReservation(need.pool, need.key, answer.reservation, answer.probe)
        taken.append((reserved, known[1], answer.account))
    for reserved, before, account in taken:
        save_account(ledger, reserved.account_key, job, before, account)
    return tuple(reserved for reserved, _, _ in taken)


def hold_scope(queue: str, lane: str, need: Need) -> str:
    """Returns a name for the jobs that wait together if this need is denied. These jobs share one hold of the
    pool. They are the jobs of the lane, or of its group if the need has no key."""
    return LANE_SEPARATOR.join((queue, shared_group(lane) if need.key is None else lane))


def make_block(denial: ClaimDenial, priority: int, override_ends: float | None, now: Instant) -> LaneBlock:
    """Returns the block for a denial. `priority` is the priority of the denied job. `override_ends` is the
    wall time when the pool's override ends, None if unknown."""
    wait = denial.denied.wait
    if override_ends is not None:
        wait = min(wait, max(0.0, override_ends - now.wall))
    of_group = denial.need.key is None and not denial.denied.never
    retry_seconds = GROUP_RETRY_SECONDS if of_group else LANE_RETRY_SECONDS
    return LaneBlock(
        pool=denial.need.pool,
        key=ANY_LIMIT_KEY if denial.denied.never else denial.need.key,
        until=now.boot + wait,
        retry_at=now.boot + min(wait, retry_seconds),
        priority=priority,
    )


def settle_reservations(  # noqa: PLR0917 - all parts of a settlement
    ledger: Ledger,
    ended: Sequence[HeldReservation],
    spent: UsageReport | None,
    job: str,
    now: Instant,
    chance: Callable[[], float],
) -> bool:
    """Ends the reservations of a settled claim. Returns True if the job loses an attempt because of a refusal
    (P17). Afterwards the caller must remove the reservations from the store.

    - `ended`: the claim's reservations, empty if they ended before.
    - `spent`: the worker's usage report.
    - `chance`: returns a random number.

    The order matters (P13, P16): first the used units are counted, then the provider's own counts are
    applied. Last, the success is recorded."""
    spent = spent or UsageReport()
    running = {seen.account_key: _running_calls(ledger, seen.account_key) for seen in spent.observations}
    _release_unspent(ledger, [reserved for reserved in ended if reserved.deferred], job, now)
    ended = [reserved for reserved in ended if not reserved.deferred]
    for account_key in dict.fromkeys(reserved.account_key for reserved in ended):
        _book_usage(
            ledger, [reserved for reserved in ended if reserved.account_key == account_key], spent, now
        )
    probes = [reserved.account_key for reserved in ended if reserved.probe]
    charged = False
    for seen in spent.observations:
        known = ledger.load(seen.account_key)
        if known is None or known[0].keyed != (seen.key is not None):
            continue
        own = [reserved for reserved in ended if reserved.account_key == seen.account_key]
        prober, call = job if seen.account_key in probes else None, _call_facts(*known, own, spent)
        if seen.refusal is not None:
            ledger.add_history(seen.pool, PoolHistoryEntry(refusals={seen.refusal.reason.value: 1}))
            charged |= accounts.spends_attempt(known[1], seen.refusal, prober, call.claimed, now)
        after = accounts.record_observation(
            *known,
            seen,
            prober,
            now,
            chance=0.0 if seen.refusal is None else chance(),
            running=running[seen.account_key],
            call=call,
        )
        save_account(ledger, seen.account_key, job, known[1], after)
    _record_call_ends(ledger, ended, job, now, is_success=spent.is_success and spent.made)
    return charged


def _record_call_ends(
    ledger: Ledger, ended: Sequence[HeldReservation], job: str, now: Instant, *, is_success: bool
) -> None:
    """Records the end of the calls of a settled claim. If `is_success=True`, a probe opens its pool, and
    guessed limits may rise."""
    probes = {reserved.account_key for reserved in ended if reserved.probe}
    for account_key in dict.fromkeys(reserved.account_key for reserved in ended):
        known = ledger.load(account_key)
        if known is None or not (account_key in probes or (is_success and accounts.has_learned(known[1]))):
            continue
        pool, before = known
        after = (
            accounts.record_call_end(before, job, now, is_success=is_success)
            if account_key in probes
            else before
        )
        own = [reserved for reserved in ended if reserved.account_key == account_key]
        claimed = _call_facts(*known, own, UsageReport()).claimed
        after = accounts.record_success(pool, after, now, claimed) if is_success else after
        if after is not before:
            save_account(ledger, account_key, job, before, after)


def recount_units(ledger: Ledger, ended: Sequence[HeldReservation], job: str, now: Instant) -> None:
    """Counts the units of abandoned reservations again, from now on (P14). Their worker stopped answering and
    may still make the call."""
    for reserved in ended:
        known = ledger.load(reserved.account_key)
        if known is None:
            continue
        account = accounts.recount_account(*known, reserved.reservation, now)
        ledger.add_history(reserved.pool, history_entry_of_call(known[0], reserved.reservation, None))
        if reserved.probe:
            account = accounts.record_call_end(account, job, now, is_success=False)
        ledger.save(reserved.account_key, account)


def release_holds(ledger: Ledger, job: str, needs: Iterable[Need]) -> None:
    """Drops the capacity that pools hold for `job`, because the job has ended."""
    for need in needs:
        account_key = (need.pool, need.key)
        known = ledger.load(account_key)
        if known is not None:
            state = reservations.drop_hold(known[1].state, job)
            if state is not known[1].state:
                ledger.save(account_key, replace(known[1], state=state))


def save_account(ledger: Ledger, account_key: AccountKey, job: str, before: Account, after: Account) -> None:
    ledger.save(account_key, after)
    if (
        before.breaker is not after.breaker
        or before.learned is not after.learned
        or before.spacings is not after.spacings
    ):
        for change in compare_accounts(account_key, job, before, after):
            ledger.tell(change)


def _release_unspent(ledger: Ledger, unspent: Sequence[HeldReservation], job: str, now: Instant) -> None:
    """Releases deferred units for which the handler made no call (P18)."""
    for reserved in unspent:
        if known := ledger.load(reserved.account_key):
            account = accounts.release_units(*known, reserved.reservation, now)
            if reserved.probe:
                account = accounts.record_call_end(account, job, now, is_success=False)
            save_account(ledger, reserved.account_key, job, known[1], account)


def _call_facts(
    pool: PoolSettings, account: Account, ended: Sequence[HeldReservation], spent: UsageReport
) -> CallFacts:
    """Returns facts about the last call of the claim, to which the provider's answer belongs."""
    calls = [of.reservation for of in ended if of.reservation.checked] or [of.reservation for of in ended[:1]]
    taken = [call.at for call in calls if call.boot == account.state.boot]
    return CallFacts(
        left=_remaining_at_claim(pool, ended, spent),
        units=calls[-1].units if calls else {},
        claimed=max(taken, default=None),
    )


def _running_calls(ledger: Ledger, account_key: AccountKey) -> int:
    """Returns the number of calls in flight in this account, including the call that is being settled. Extra
    requests do not count as calls."""
    known = ledger.load(account_key)
    return max(1, ledger.reservations(account_key) - (0 if known is None else known[1].state.unchecked))


def _remaining_at_claim(pool: PoolSettings, ended: Sequence[HeldReservation], spent: UsageReport) -> Units:
    """Returns, by limit name, how many units were left at the claim by our count. Units that the call
    reserved and did not use are added."""
    left: Units = {}
    for limit in pool.limits:
        then = [of.reservation.left[limit.name] for of in ended if limit.name in of.reservation.left]
        if then:
            reserved = sum(call_amount(of.reservation.units, limit) or 0.0 for of in ended)
            used = _reported_units(ended[0].account_key, spent) or {}
            left[limit.name] = min(then) + max(0.0, reserved - used.get(limit.unit, reserved))
    return left


def _reported_units(account_key: AccountKey, spent: UsageReport) -> Units | None:
    return next((usage.units for usage in spent.usages if usage.account_key == account_key), None)


def _book_usage(ledger: Ledger, ended: Sequence[HeldReservation], spent: UsageReport, now: Instant) -> None:
    """Ends the reservations `ended` of one account with the usage in `spent`. If no call was made, all units
    are returned."""
    account_key = ended[0].account_key
    if (known := ledger.load(account_key)) is None:
        return
    pool, account = known
    used = _reported_units(account_key, spent)
    shares = share_usage(used, [reserved.reservation.units for reserved in ended])
    for reserved, share in zip(ended, shares, strict=True):
        if spent.made:
            account = accounts.settle_units(pool, account, reserved.reservation, share, now)
            ledger.add_history(reserved.pool, history_entry_of_call(pool, reserved.reservation, share))
        else:
            account = accounts.release_units(pool, account, reserved.reservation, now)
    ledger.save(account_key, account)
