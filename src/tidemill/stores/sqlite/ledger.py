"""The ledger of the SQLite store: the accounts that one transaction uses. Each account is read once and
written once.

When units become free, the same transaction unblocks the lanes that wait for these units. So a claim does not
have to check the accounts of blocked lanes."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from tidemill.contract.coordination import queue_topic
from tidemill.core import accounts, key_overrides, late_calls
from tidemill.core.accounts import Account, UnitDenial
from tidemill.core.late_calls import Departure
from tidemill.core.ledger import ANY_LIMIT_KEY, AccountKey, HeldReservation
from tidemill.core.needs import LANE_SEPARATOR, Need
from tidemill.core.pool_statistics import PoolChange, PoolHistoryEntry
from tidemill.core.pools import PoolSettings
from tidemill.core.reservations import Reservation
from tidemill.core.windows import Instant
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.settings_cache import POOLS, PoolCache, PoolRow
from tidemill.stores.sqlite.statements import load_statements

ACCOUNTS = load_statements("accounts")
RESERVATIONS = load_statements("reservations")
LANES = load_statements("lanes")
ClaimKey = tuple[str, int, int]
"""Job id, fence and claim id."""
_ACCOUNT = msgspec.json.Decoder(Account)
_RESERVATION = msgspec.json.Decoder(Reservation)
_UNITS = msgspec.json.Decoder(dict[str, float])
_REFUSALS = msgspec.json.Decoder(dict[str, int])


class SqliteLedger:
    """Implements `core.ledger.Ledger` for one transaction. `topics`: the wake-ups to send after the commit;
    unblocked lanes add their queues."""

    def __init__(
        self, connection: apsw.Connection, now: Instant, boot_id: str, cache: PoolCache, topics: set[str]
    ) -> None:
        self.now = now
        self._connection, self._boot_id, self._cache, self._topics = connection, boot_id, cache, topics
        self._pools: dict[str, PoolRow | None] = {}
        self._accounts: dict[AccountKey, Account] = {}
        self._changed: set[AccountKey] = set()
        self._freed: set[AccountKey] = set()
        self._history: dict[str, PoolHistoryEntry] = {}
        self.has_reserved = False
        self._changes: list[PoolChange] = []

    # -- pools

    def pool(self, name: str) -> PoolRow | None:
        if name not in self._pools:
            self._pools[name] = self._cache.read(self._connection, name)
        return self._pools[name]

    def pool_changed(self, name: str) -> None:
        """Forgets the loaded row of a pool, after the row has changed in the database. Unblocks all lanes
        that wait for the pool."""
        self._pools.pop(name, None)
        self._unblock(LANES.unblock_groups_of, name)
        self._unblock(LANES.unblock_lanes_of_pool, name)

    def override_ends(self, account_key: AccountKey) -> float | None:
        """Returns the wall time when the first override of the pool or of the key ends; None if none ends."""
        row = self.pool(account_key[0])
        account = self._accounts.get(account_key, Account())
        return key_overrides.first_override_end(None if row is None else row.override, account)

    def _end_override(self, name: str, row: PoolRow) -> None:
        """Deletes the override of a pool if the override has expired (P2). Otherwise it would return when the
        wall clock is set back."""
        if row.override is not None and not row.override.holds(self.now.wall):
            self._connection.execute(POOLS.override, (None, name))
            self.pool_changed(name)

    # -- accounts

    def load(self, account_key: AccountKey) -> tuple[PoolSettings, Account] | None:
        row = self.pool(account_key[0])
        if row is None:
            return None
        self._end_override(account_key[0], row)
        settings, account = self.peek_account(row, account_key)
        ended = key_overrides.end_key_override(account, self.now.wall)
        if ended is not account:
            self.change_key(account_key, ended)
        return settings, ended

    def peek_account(self, pool: PoolRow, account_key: AccountKey) -> tuple[PoolSettings, Account]:
        """Returns the settings in force and the account of a pool or of one key of it. Unlike `load`, this
        method does not delete an expired override."""
        account = self._accounts.get(account_key)
        if account is None:
            settings, account = self.as_of_now(pool, self._read(account_key))
            self._accounts[account_key] = account
            return settings, account
        return key_overrides.apply_key_override(pool.in_force(self.now.wall), account, self.now.wall), account

    def _read(self, account_key: AccountKey) -> Account:
        text = self._connection.execute(ACCOUNTS.by_key, (account_key[0], account_key[1] or "")).get
        return Account() if text is None else _ACCOUNT.decode(text)

    def as_of_now(self, pool: PoolRow, stored: Account) -> tuple[PoolSettings, Account]:
        """Returns the settings in force for a stored account, and the account brought up to date."""
        settings = key_overrides.apply_key_override(pool.in_force(self.now.wall), stored, self.now.wall)
        return settings, accounts.refresh_account(settings, stored, self._boot_id, self.now)

    def change_key(self, account_key: AccountKey, account: Account) -> None:
        """Saves the account of a key after its limits have changed. Unblocks the lanes that wait for the
        key."""
        self._accounts[account_key] = account
        self._changed.add(account_key)
        for key in (account_key[1], ANY_LIMIT_KEY):
            self._unblock(LANES.unblock_lanes_of, account_text((account_key[0], key)))

    def save(self, account_key: AccountKey, account: Account) -> None:
        before = self._accounts[account_key]
        if account.state.revision != before.state.revision:
            self._freed.add(account_key)
        self._accounts[account_key] = account
        self._changed.add(account_key)

    def forget(self, account_key: AccountKey) -> None:
        self._accounts.pop(account_key, None)
        self._changed.discard(account_key)

    def write(self) -> None:
        rows = [
            (pool, key or "", self.now.wall, text_of(self._accounts[pool, key]))
            for pool, key in self._changed
        ]
        self._connection.executemany(ACCOUNTS.save, rows)
        self._changed.clear()
        for pool, entry in self._history.items():
            self._write_minute(pool, entry)
        self._history.clear()

    # -- history

    def add_history(self, pool: str, entry: PoolHistoryEntry) -> None:
        self._history[pool] = self._history.get(pool, PoolHistoryEntry()).plus(entry)

    def _write_minute(self, pool: str, entry: PoolHistoryEntry) -> None:
        minute = int(self.now.wall // 60)
        before = self._connection.execute(POOLS.minute, (pool, minute)).fetchone()
        total = entry if before is None else pool_minute_of(*before).plus(entry)
        row = (pool, minute, total.calls, text_of(total.units), text_of(total.refusals))
        self._connection.execute(POOLS.save_minute, row)

    # -- reservations

    def reservations(self, account_key: AccountKey) -> int:
        return int(self._connection.execute(RESERVATIONS.count, (account_key[0], account_key[1] or "")).get)

    def hold(self, claim: ClaimKey, worker: str, taken: tuple[HeldReservation, ...]) -> None:
        self.has_reserved = True
        first: int = self._connection.execute(RESERVATIONS.next_number, claim).get
        rows = [
            (
                *claim,
                number,
                held.pool,
                held.key or "",
                text_of(held.reservation),
                held.probe,
                held.deferred,
                worker,
            )
            for number, held in enumerate(taken, first)
        ]
        self._connection.executemany(RESERVATIONS.add, rows)

    def exchange(self, claim: ClaimKey, worker: str, need: Need) -> bool | float:
        """Starts to count units that the claim reserved for a later call, because the handler makes this call
        now (P18). Returns True if done, False if the claim has no such reservation, or the seconds to wait if
        units are missing."""
        row = self._connection.execute(RESERVATIONS.deferred, (*claim, need.pool, need.key or "")).fetchone()
        if row is None:
            return False
        number, reservation, probe = row
        reserved = reserved_of(need.pool, need.key or "", reservation, probe, deferred=1)
        answer = late_calls.exchange_deferred(self, reserved, need, claim[0], self.now)
        if isinstance(answer, UnitDenial):
            return answer.wait
        taken, rest = answer
        if rest is None:
            self._connection.execute(RESERVATIONS.end_one, (*claim, number))
        else:
            self._connection.execute(RESERVATIONS.keep, (text_of(rest.reservation), *claim, number))
        self.hold(claim, worker, (taken,))
        return True

    def depart(self, claim: ClaimKey, worker: str, need: Need, departure: Departure) -> None:
        """Counts the units of a request that is sent now without a valid reservation (P21).

        - `EXTRA`: the request has no reservation and gets one, even if the units are not free
        - `LATE`: the request leaves too late for its reservation, so its units count from now"""
        if departure is Departure.EXTRA:
            reserved = late_calls.take_extra_request(self, need, self.now)
            self.hold(claim, worker, () if reserved is None else (reserved,))
            return
        account_key = (need.pool, need.key or "")
        rows: list[Any] = self._connection.execute(RESERVATIONS.of_account, (*claim, *account_key)).fetchall()
        held = [reserved_of(*account_key, *columns) for _, *columns in rows]
        at = late_calls.find_late_reservation(held, need)
        if at is not None:
            self._connection.execute(RESERVATIONS.end_one, (*claim, rows[at][0]))
            self.hold(claim, worker, (late_calls.reenter_late_request(self, held[at], self.now),))

    # -- changes of pools

    def tell(self, change: PoolChange) -> None:
        self._changes.append(change)

    def take_pool_changes(self) -> tuple[PoolChange, ...]:
        changes, self._changes = tuple(self._changes), []
        return changes

    # -- blocked lanes

    def reopen(self) -> None:
        """Unblocks the lanes and groups of lanes that wait for units which became free, and wakes their
        queues (P15)."""
        for pool, key in self._freed:
            if key is None:
                self._unblock(LANES.unblock_groups_of, pool)
            else:
                self._unblock(LANES.unblock_lanes_of, account_text((pool, key)))
        self._freed.clear()

    def _unblock(self, sql: str, blocked_by: str) -> None:
        for (queue,) in self._connection.execute(sql, (blocked_by,)).fetchall():
            self._topics.add(queue_topic(str(queue)))


def account_text(account_key: AccountKey) -> str:
    return f"{account_key[0]}{LANE_SEPARATOR}{account_key[1] or ''}"


def reserved_of(pool: str, key: str, reservation: str, probe: int, deferred: int) -> HeldReservation:
    return HeldReservation(pool, key or None, _RESERVATION.decode(reservation), bool(probe), bool(deferred))


def pool_minute_of(calls: int, units: str, refusals: str) -> PoolHistoryEntry:
    return PoolHistoryEntry(calls=calls, units=_UNITS.decode(units), refusals=_REFUSALS.decode(refusals))


def reservation_of(text: str) -> Reservation:
    return _RESERVATION.decode(text)


def account_of(text: str) -> Account:
    return _ACCOUNT.decode(text)
