"""The pools of a store in memory: settings, one account per pool and key, and the claims that hold units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from tidemill.clock import Clock
from tidemill.core import accounts, key_overrides, late_calls, ledger, pool_statistics
from tidemill.core.accounts import Account, UnitDenial
from tidemill.core.late_calls import Departure
from tidemill.core.ledger import AccountKey, HeldReservation
from tidemill.core.needs import Need
from tidemill.core.overrides import Override, apply_override
from tidemill.core.pool_statistics import PoolChange, PoolHistoryEntry
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.windows import Instant
from tidemill.engine.indexes import KeyCounts

ClaimKey = tuple[str, int, int]
"""Job, fence and claim id."""


class PoolRecord(msgspec.Struct):
    """A pool as it is stored: the settings that code declares, and an operator's override."""

    declared: PoolSettings
    override: Override[LimitChanges] | None = None


class AbandonedClaim(msgspec.Struct, frozen=True):
    """The claim of a job that was cancelled while it ran. Its worker may still settle the reserved units
    until the boot-clock time `lease`."""

    worker: str
    lease: float


class PoolLedger:
    """The pools, accounts and reservations of a store; implements the protocol `core.ledger.Ledger`.

    `freed`: is called with the key of an account whose units may be free again."""

    def __init__(self, clock: Clock, freed: Callable[[AccountKey], None]) -> None:
        self._clock, self._freed = clock, freed
        self.pools: dict[str, PoolRecord] = {}
        self.accounts: dict[AccountKey, Account] = {}
        self.reserved: dict[ClaimKey, list[HeldReservation]] = {}
        self.left: dict[ClaimKey, AbandonedClaim] = {}
        # Recounted at that wall time, and not settled since.
        self.unconfirmed_units: dict[ClaimKey, float] = {}
        self.history: dict[str, dict[float, PoolHistoryEntry]] = {}
        self._open: KeyCounts[AccountKey] = KeyCounts()
        self._pool_changes: list[PoolChange] = []
        self._last_used: dict[AccountKey, float] = {}  # when each was last written, or found worth keeping

    def now(self) -> Instant:
        return Instant(self._clock.wall(), self._clock.boot())

    def load(self, account_key: AccountKey) -> tuple[PoolSettings, Account] | None:
        pool = self.pools.get(account_key[0])
        if pool is None:
            return None
        self._end_override(account_key[0], pool)
        self._end_key_override(account_key)
        return self.peek_account(pool, account_key)

    def peek_account(self, pool: PoolRecord, account_key: AccountKey) -> tuple[PoolSettings, Account]:
        """Returns the pool's settings in force and the account as it is now, and changes nothing."""
        account = self.accounts.get(account_key, Account())
        settings = key_overrides.apply_key_override(self.in_force(pool), account, self._clock.wall())
        return settings, accounts.refresh_account(settings, account, self._clock.boot_id, self.now())

    def save(self, account_key: AccountKey, account: Account) -> None:
        before = self.accounts.get(account_key)
        self.accounts[account_key] = account
        self._last_used[account_key] = self._clock.wall()
        if before is not None and before.state.revision != account.state.revision:
            self._freed(account_key)

    def reservations(self, account_key: AccountKey) -> int:
        return self._open.of(account_key)

    def count_open(self, account_key: AccountKey, reservations: int) -> None:
        """Adds `reservations` to the number of open reservations of an account. It is for stores that load
        only this number."""
        self._open.change(account_key, reservations)

    def add_history(self, pool: str, entry: PoolHistoryEntry) -> None:
        minutes, minute = self.history.setdefault(pool, {}), self._clock.wall() // 60 * 60
        minutes[minute] = minutes.get(minute, PoolHistoryEntry()).plus(entry)

    def forget_minutes(self, before: float) -> None:
        for pool, minutes in self.history.items():
            self.history[pool] = {minute: entry for minute, entry in minutes.items() if minute >= before}

    def tell(self, change: PoolChange) -> None:
        self._pool_changes.append(change)

    def take_pool_changes(self) -> tuple[PoolChange, ...]:
        changes, self._pool_changes = tuple(self._pool_changes), []
        return changes

    def in_force(self, pool: PoolRecord) -> PoolSettings:
        return apply_override(pool.declared, pool.override, self._clock.wall())

    def override_ends(self, account_key: AccountKey) -> float | None:
        """Returns the wall time when the first override of the pool or of the key ends; None if none ends."""
        account = self.accounts.get(account_key, Account())
        return key_overrides.first_override_end(self.pools[account_key[0]].override, account)

    def _end_override(self, name: str, pool: PoolRecord) -> None:
        """Removes the override of a pool if it has expired, so that setting the wall clock back cannot
        restore it (P2)."""
        if pool.override is not None and not pool.override.holds(self._clock.wall()):
            pool.override = None
            self.reopen(name)

    def _end_key_override(self, account_key: AccountKey) -> None:
        account = self.accounts.get(account_key)
        if account is not None and account.override is not None:
            ended = key_overrides.end_key_override(account, self._clock.wall())
            if ended is not account:
                self.change_key(account_key, ended)

    def change_key(self, account_key: AccountKey, account: Account) -> None:
        """Saves the account of a key whose limits have changed. Also tries jobs again that were too large for
        the old limits."""
        self.save(account_key, account)
        self._freed((account_key[0], ledger.ANY_LIMIT_KEY))

    def reopen(self, pool: str) -> None:
        """Tries every job again that waits for the pool. Call it when the limits of the pool have changed."""
        for account_key in [(pool, None), (pool, ledger.ANY_LIMIT_KEY), *self.account_keys_of(pool)]:
            self._freed(account_key)

    def pool_names(self) -> list[str]:
        return list(self.pools)

    def account_keys_of(self, pool: str) -> list[AccountKey]:
        return [account_key for account_key in self.accounts if account_key[0] == pool]

    def claims_of_pool(self, pool: str) -> list[ClaimKey]:
        """Returns the claims that hold units of the pool."""
        return [
            claim for claim, held in self.reserved.items() if any(reserved.pool == pool for reserved in held)
        ]

    def abandoned_claims(self, boot: float, dead: frozenset[str]) -> list[ClaimKey]:
        """Returns the claims of cancelled jobs whose lease has expired at the boot-clock time `boot`, or
        whose worker is in `dead`."""
        return [claim for claim, left in self.left.items() if left.lease <= boot or left.worker in dead]

    def add_reservations(self, claim: ClaimKey, taken: Sequence[HeldReservation]) -> None:
        if taken:
            self.reserved.setdefault(claim, []).extend(taken)
            for reserved in taken:
                self._open.change(reserved.account_key, 1)

    def exchange_deferred(self, claim: ClaimKey, need: Need) -> bool | float:
        """Makes deferred units of a claim count from now (P18). Deferred units were reserved at the claim for
        a later call. Returns True if done, the seconds to wait if the pool denies, and False if the claim has
        no deferred units of that account."""
        held = self.reserved.get(claim, [])
        for at, reserved in enumerate(held):
            if reserved.deferred and reserved.account_key == (need.pool, need.key):
                answer = late_calls.exchange_deferred(self, reserved, need, claim[0], self.now())
                if isinstance(answer, UnitDenial):
                    return answer.wait
                taken, rest = answer
                held[at : at + 1] = [] if rest is None else [rest]
                if rest is None:
                    self._open.change(reserved.account_key, -1)
                self.add_reservations(claim, (taken,))
                return True
        return False

    def record_departure(self, claim: ClaimKey, need: Need, departure: Departure) -> None:
        """Records a request that its reservation does not cover (P21). The units of a late request count
        again from now. An extra request gets a new reservation."""
        if departure is Departure.EXTRA:
            reserved = late_calls.take_extra_request(self, need, self.now())
            self.add_reservations(claim, () if reserved is None else (reserved,))
            return
        held = self.reserved.get(claim, [])
        at = late_calls.find_late_reservation(held, need)
        if at is not None:
            held.append(late_calls.reenter_late_request(self, held.pop(at), self.now()))

    def abandon(self, claim: ClaimKey, worker: str, lease: float) -> None:
        if claim in self.reserved:
            self.left[claim] = AbandonedClaim(worker, lease)

    def end_claim(self, claim: ClaimKey) -> None:
        for reserved in self.reserved.pop(claim, ()):
            self._open.change(reserved.account_key, -1)
        self.left.pop(claim, None)

    def recount_units(self, claim: ClaimKey) -> None:
        """Ends the reservations of a claim whose worker stopped answering (P14). Their units count again from
        now, because the worker may still make its calls."""
        ended = self.reserved.get(claim)
        if ended:
            ledger.recount_units(self, ended, claim[0], self.now())
            self.end_claim(claim)
            self.unconfirmed_units[claim] = self._clock.wall()

    def handle_reboot(self) -> None:
        """Removes from all accounts the values that a restart of the machine made invalid. Ends the leases of
        claims whose job was cancelled."""
        for account_key in self.accounts:
            if known := self.load(account_key):
                self.save(account_key, known[1])
        self.left = {claim: replace(left, lease=0.0) for claim, left in self.left.items()}

    def forget_unconfirmed(self, before: float) -> None:
        self.unconfirmed_units = {
            claim: since for claim, since in self.unconfirmed_units.items() if since > before
        }

    def forget_idle_keys(self, limit: int) -> None:
        """Deletes accounts of unused pool keys that have no effect any more. Examines at most `limit`."""
        since = self._clock.wall() - pool_statistics.UNUSED_KEY_SECONDS
        unused = [
            (last_used, account_key)
            for account_key, last_used in self._last_used.items()
            if account_key[1] is not None and last_used < since
        ]
        for _, account_key in sorted(unused)[:limit]:
            pool = self.pools.get(account_key[0])
            known = pool and self.peek_account(pool, account_key)
            if known and not self._open.of(account_key) and pool_statistics.is_at_rest(*known, self.now()):
                del self.accounts[account_key], self._last_used[account_key]
            else:
                self._last_used[account_key] = self._clock.wall()
