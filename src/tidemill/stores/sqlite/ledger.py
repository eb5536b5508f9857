"""The accounts a step concerns: each is read once and written once, however many jobs need it.

Whatever frees units opens what waits for them in the same step: a shut group is one row of `blocks`, a
lane shut by a key is marked with it, so nobody has to compare revisions.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from tidemill.contract.wakeups import queue_topic
from tidemill.core import accounts, departures, extras
from tidemill.core.accounts import Account, Denied
from tidemill.core.departures import Departure
from tidemill.core.ledger import PLACE, Reserved
from tidemill.core.needs import SEPARATOR, Need
from tidemill.core.pool_history import Remark
from tidemill.core.pool_news import PoolNews
from tidemill.core.pools import PoolOverride, PoolSettings
from tidemill.core.reserving import Reservation
from tidemill.core.windows import Instant
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load

POOLS, ACCOUNTS, RESERVATIONS, LANES = load("pools"), load("accounts"), load("reservations"), load("lanes")
Claim = tuple[str, int, int]
"""Job, fence and claim."""
_SETTINGS = msgspec.json.Decoder(PoolSettings)
_OVERRIDE = msgspec.json.Decoder(PoolOverride)
_ACCOUNT = msgspec.json.Decoder(Account)
_RESERVATION = msgspec.json.Decoder(Reservation)
_UNITS = msgspec.json.Decoder(dict[str, float])
_REFUSALS = msgspec.json.Decoder(dict[str, int])


class PoolRow(msgspec.Struct, frozen=True):
    declared: PoolSettings
    override: PoolOverride | None
    overridden: PoolSettings

    def in_force(self, now: float) -> PoolSettings:
        return self.declared if self.override is None or not self.override.holds(now) else self.overridden


class PoolCache:
    """As `settings.SettingsCache`: only a changed row is parsed."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[tuple[str, str | None], PoolRow]] = {}

    def read(self, connection: apsw.Connection, pool: str) -> PoolRow | None:
        texts = connection.execute(POOLS.one, (pool,)).fetchone()
        if texts is None:
            return None
        known = self._parsed.get(pool)
        if known is None or known[0] != texts:
            known = self._parsed[pool] = (texts, pool_row(*texts))
        return known[1]


def pool_row(declared: str, override: str | None) -> PoolRow:
    settings = _SETTINGS.decode(declared)
    over = None if override is None else _OVERRIDE.decode(override)
    return PoolRow(settings, over, settings if over is None else over.changes.over(settings))


class StepLedger:
    """A `core.ledger.Ledger` for the length of one step."""

    def __init__(
        self, connection: apsw.Connection, now: Instant, boot_id: str, cache: PoolCache, topics: set[str]
    ) -> None:
        self.now = now
        self._connection, self._boot_id, self._cache, self._topics = connection, boot_id, cache, topics
        self._pools: dict[str, PoolRow | None] = {}
        self._accounts: dict[PLACE, Account] = {}
        self._changed: set[PLACE] = set()
        self._freed: set[PLACE] = set()
        self._remarks: dict[str, Remark] = {}
        self.has_reserved = False
        self._news: list[PoolNews] = []

    # -- pools

    def pool(self, name: str) -> PoolRow | None:
        if name not in self._pools:
            self._pools[name] = self._cache.read(self._connection, name)
        return self._pools[name]

    def pool_changed(self, name: str) -> None:
        """Its row was written by this step: it is read anew, and whoever waits for it asks again."""
        self._pools.pop(name, None)
        self._ring(LANES.open_groups_of, name)
        self._ring(LANES.open_lanes_of_pool, name)

    def override_ends(self, pool: str) -> float | None:
        row = self.pool(pool)
        return None if row is None or row.override is None else row.override.until

    def _end_override(self, name: str, row: PoolRow) -> None:
        """P2. It does not come back when the wall clock is set back."""
        if row.override is not None and not row.override.holds(self.now.wall):
            self._connection.execute(POOLS.override, (None, name))
            self.pool_changed(name)

    # -- accounts

    def load(self, place: PLACE) -> tuple[PoolSettings, Account] | None:
        row = self.pool(place[0])
        if row is None:
            return None
        self._end_override(place[0], row)
        return self.look_at(row, place)

    def look_at(self, pool: PoolRow, place: PLACE) -> tuple[PoolSettings, Account]:
        """As `load`, and changes nothing."""
        settings = pool.in_force(self.now.wall)
        account = self._accounts.get(place)
        if account is None:
            account = self._accounts[place] = self._read(place, settings)
        return settings, account

    def _read(self, place: PLACE, settings: PoolSettings) -> Account:
        text = self._connection.execute(ACCOUNTS.one, (place[0], place[1] or "")).get
        stored = Account() if text is None else _ACCOUNT.decode(text)
        return self.as_of_now(settings, stored)

    def as_of_now(self, settings: PoolSettings, stored: Account) -> Account:
        return accounts.current(settings, stored, self._boot_id, self.now)

    def save(self, place: PLACE, account: Account) -> None:
        before = self._accounts[place]
        if account.state.revision != before.state.revision:
            self._freed.add(place)
        self._accounts[place] = account
        self._changed.add(place)

    def forget(self, place: PLACE) -> None:
        self._accounts.pop(place, None)
        self._changed.discard(place)

    def write(self) -> None:
        rows = [
            (pool, key or "", self.now.wall, text_of(self._accounts[pool, key]))
            for pool, key in self._changed
        ]
        self._connection.executemany(ACCOUNTS.save, rows)
        self._changed.clear()
        for pool, remark in self._remarks.items():
            self._write_minute(pool, remark)
        self._remarks.clear()

    # -- history

    def remark(self, pool: str, what: Remark) -> None:
        self._remarks[pool] = self._remarks.get(pool, Remark()).plus(what)

    def _write_minute(self, pool: str, what: Remark) -> None:
        minute = int(self.now.wall // 60)
        before = self._connection.execute(POOLS.minute, (pool, minute)).fetchone()
        total = what if before is None else remark_of(*before).plus(what)
        row = (pool, minute, total.calls, text_of(total.units), text_of(total.refusals))
        self._connection.execute(POOLS.save_minute, row)

    # -- reservations

    def reservations(self, place: PLACE) -> int:
        return int(self._connection.execute(RESERVATIONS.count, (place[0], place[1] or "")).get)

    def hold(self, claim: Claim, worker: str, taken: tuple[Reserved, ...]) -> None:
        self.has_reserved = True
        first: int = self._connection.execute(RESERVATIONS.next_number, claim).get
        rows = [
            (*claim, number, of.pool, of.key or "", text_of(of.reservation), of.probe, of.extra, worker)
            for number, of in enumerate(taken, first)
        ]
        self._connection.executemany(RESERVATIONS.add, rows)

    def exchange(self, claim: Claim, worker: str, need: Need) -> bool | float:
        """P18: whether something was kept for that call, or how long to wait for it."""
        row = self._connection.execute(RESERVATIONS.kept, (*claim, need.pool, need.key or "")).fetchone()
        if row is None:
            return False
        number, reservation, probe = row
        kept = reserved_of(need.pool, need.key or "", reservation, probe, extra=1)
        answer = extras.exchange(self, kept, need, claim[0], self.now)
        if isinstance(answer, Denied):
            return answer.wait
        taken, rest = answer
        if rest is None:
            self._connection.execute(RESERVATIONS.end_one, (*claim, number))
        else:
            self._connection.execute(RESERVATIONS.keep, (text_of(rest.reservation), *claim, number))
        self.hold(claim, worker, (taken,))
        return True

    def depart(self, claim: Claim, worker: str, need: Need, departure: Departure) -> None:
        """P21. A reservation that was entered again is the newest of its claim."""
        if departure is Departure.EXTRA:
            extra = departures.book_extra(self, need, self.now)
            self.hold(claim, worker, () if extra is None else (extra,))
            return
        place = (need.pool, need.key or "")
        rows: list[Any] = self._connection.execute(RESERVATIONS.of_place, (*claim, *place)).fetchall()
        held = [reserved_of(*place, reservation, probe, extra) for _, reservation, probe, extra in rows]
        at = departures.late_one(held, need)
        if at is not None:
            self._connection.execute(RESERVATIONS.end_one, (*claim, rows[at][0]))
            self.hold(claim, worker, (departures.enter_late(self, held[at], self.now),))

    # -- who asked for the step

    def tell(self, news: PoolNews) -> None:
        self._news.append(news)

    def take_news(self) -> tuple[PoolNews, ...]:
        news, self._news = tuple(self._news), []
        return news

    # -- who waits

    def reopen(self) -> None:
        """P15: what waits for units that came free is open again, and its queues are rung."""
        for pool, key in self._freed:
            if key is None:
                self._ring(LANES.open_groups_of, pool)
            else:
                self._ring(LANES.open_lanes_of, waits_for((pool, key)))
        self._freed.clear()

    def _ring(self, sql: str, waited_for: str) -> None:
        for (queue,) in self._connection.execute(sql, (waited_for,)).fetchall():
            self._topics.add(queue_topic(str(queue)))


def waits_for(place: PLACE) -> str:
    return f"{place[0]}{SEPARATOR}{place[1] or ''}"


def reserved_of(pool: str, key: str, reservation: str, probe: int, extra: int) -> Reserved:
    return Reserved(pool, key or None, _RESERVATION.decode(reservation), bool(probe), bool(extra))


def remark_of(calls: int, units: str, refusals: str) -> Remark:
    return Remark(calls=calls, units=_UNITS.decode(units), refusals=_REFUSALS.decode(refusals))


def reservation_of(text: str) -> Reservation:
    return _RESERVATION.decode(text)


def account_of(text: str) -> Account:
    return _ACCOUNT.decode(text)
