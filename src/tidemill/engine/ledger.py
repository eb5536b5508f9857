"""What the store keeps of pools: their settings, an account per pool and key, and who holds units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from tidemill.clock import Clock
from tidemill.core import accounts, departures, extras, ledger, usage
from tidemill.core.accounts import Account, Denied
from tidemill.core.departures import Departure
from tidemill.core.ledger import PLACE, Reserved
from tidemill.core.needs import Need
from tidemill.core.pool_history import Remark
from tidemill.core.pool_news import PoolNews
from tidemill.core.pools import PoolOverride, PoolSettings, in_force
from tidemill.core.windows import Instant
from tidemill.engine.indexes import Tally

Claim = tuple[str, int, int]
"""Job, fence and claim id."""


class Pool(msgspec.Struct):
    declared: PoolSettings
    override: PoolOverride | None = None


class Left(msgspec.Struct, frozen=True):
    """A running job was cancelled: its units are its holder's to settle, until its lease is over."""

    worker: str
    lease: float


class Books:
    """A `core.ledger.Ledger`. `freed` is told of every account that may let others in now."""

    def __init__(self, clock: Clock, freed: Callable[[PLACE], None]) -> None:
        self._clock, self._freed = clock, freed
        self.pools: dict[str, Pool] = {}
        self.accounts: dict[PLACE, Account] = {}
        self.reserved: dict[Claim, list[Reserved]] = {}
        self.left: dict[Claim, Left] = {}
        self.unheard: dict[Claim, float] = {}  # counted anew at that wall time, and not settled since
        self.history: dict[str, dict[float, Remark]] = {}
        self._open: Tally[PLACE] = Tally()
        self._news: list[PoolNews] = []
        self._looked: dict[PLACE, float] = {}  # when each was last written, or found worth keeping

    def now(self) -> Instant:
        return Instant(self._clock.wall(), self._clock.boot())

    def load(self, place: PLACE) -> tuple[PoolSettings, Account] | None:
        pool = self.pools.get(place[0])
        if pool is None:
            return None
        self._end_override(place[0], pool)
        return self.look_at(pool, place)

    def look_at(self, pool: Pool, place: PLACE) -> tuple[PoolSettings, Account]:
        """As `load`, and changes nothing."""
        settings, account = self.in_force(pool), self.accounts.get(place, Account())
        return settings, accounts.current(settings, account, self._clock.boot_id, self.now())

    def save(self, place: PLACE, account: Account) -> None:
        before = self.accounts.get(place)
        self.accounts[place] = account
        self._looked[place] = self._clock.wall()
        if before is not None and before.state.revision != account.state.revision:
            self._freed(place)

    def reservations(self, place: PLACE) -> int:
        return self._open.of(place)

    def count_open(self, place: PLACE, reservations: int) -> None:
        """For whoever reads what others hold."""
        self._open.change(place, reservations)

    def remark(self, pool: str, what: Remark) -> None:
        minutes, minute = self.history.setdefault(pool, {}), self._clock.wall() // 60 * 60
        minutes[minute] = minutes.get(minute, Remark()).plus(what)

    def forget_minutes(self, before: float) -> None:
        for pool, minutes in self.history.items():
            self.history[pool] = {minute: what for minute, what in minutes.items() if minute >= before}

    def tell(self, news: PoolNews) -> None:
        self._news.append(news)

    def take_news(self) -> tuple[PoolNews, ...]:
        news, self._news = tuple(self._news), []
        return news

    def in_force(self, pool: Pool) -> PoolSettings:
        return in_force(pool.declared, pool.override, self._clock.wall())

    def override_ends(self, pool: str) -> float | None:
        override = self.pools[pool].override
        return None if override is None else override.until

    def _end_override(self, name: str, pool: Pool) -> None:
        """P2. Its time is over: it does not come back when the wall clock is set back."""
        if pool.override is not None and not pool.override.holds(self._clock.wall()):
            pool.override = None
            self.reopen(name)

    def reopen(self, pool: str) -> None:
        """Other limits hold: whoever waits for it, with whatever key, asks again."""
        for place in [(pool, None), (pool, ledger.ITS_LIMITS), *self.places_of(pool)]:
            self._freed(place)

    def names(self) -> list[str]:
        return list(self.pools)

    def places_of(self, pool: str) -> list[PLACE]:
        return [place for place in self.accounts if place[0] == pool]

    def claims_on(self, pool: str) -> list[Claim]:
        """Those that hold units of it."""
        return [claim for claim, held in self.reserved.items() if any(one.pool == pool for one in held)]

    def left_over(self, boot: float, dead: frozenset[str]) -> list[Claim]:
        """Those that were left their units, and whose time is over."""
        return [claim for claim, left in self.left.items() if left.lease <= boot or left.worker in dead]

    def hold(self, claim: Claim, taken: Sequence[Reserved]) -> None:
        if taken:
            self.reserved.setdefault(claim, []).extend(taken)
            for reserved in taken:
                self._open.change(reserved.place, 1)

    def exchange(self, claim: Claim, need: Need) -> bool | float:
        """P18: whether something was kept for that call, or how long to wait for it."""
        held = self.reserved.get(claim, [])
        for at, kept in enumerate(held):
            if kept.extra and kept.place == (need.pool, need.key):
                answer = extras.exchange(self, kept, need, claim[0], self.now())
                if isinstance(answer, Denied):
                    return answer.wait
                taken, rest = answer
                held[at : at + 1] = [] if rest is None else [rest]
                if rest is None:
                    self._open.change(kept.place, -1)
                self.hold(claim, (taken,))
                return True
        return False

    def depart(self, claim: Claim, need: Need, departure: Departure) -> None:
        """P21. A reservation that was entered again is the newest of its claim."""
        if departure is Departure.EXTRA:
            extra = departures.book_extra(self, need, self.now())
            self.hold(claim, () if extra is None else (extra,))
            return
        held = self.reserved.get(claim, [])
        at = departures.late_one(held, need)
        if at is not None:
            held.append(departures.enter_late(self, held.pop(at), self.now()))

    def leave(self, claim: Claim, worker: str, lease: float) -> None:
        if claim in self.reserved:
            self.left[claim] = Left(worker, lease)

    def end(self, claim: Claim) -> None:
        for reserved in self.reserved.pop(claim, ()):
            self._open.change(reserved.place, -1)
        self.left.pop(claim, None)

    def count_anew(self, claim: Claim) -> None:
        """P14."""
        ended = self.reserved.get(claim)
        if ended:
            ledger.count_anew(self, ended, claim[0], self.now())
            self.end(claim)
            self.unheard[claim] = self._clock.wall()

    def notice_boot(self) -> None:
        """What is lost with a boot is lost now, and nobody who was left units speaks again."""
        for place in self.accounts:
            if known := self.load(place):
                self.save(place, known[1])
        self.left = {claim: replace(left, lease=0.0) for claim, left in self.left.items()}

    def forget_unheard(self, before: float) -> None:
        self.unheard = {claim: since for claim, since in self.unheard.items() if since > before}

    def forget_resting(self, limit: int) -> None:
        """Keys nobody uses any more: an account that is not there would answer the same."""
        since = self._clock.wall() - usage.UNUSED_FOR
        unused = [
            (looked, place)
            for place, looked in self._looked.items()
            if place[1] is not None and looked < since
        ]
        for _, place in sorted(unused)[:limit]:
            pool = self.pools.get(place[0])
            known = pool and self.look_at(pool, place)
            if known and not self._open.of(place) and usage.at_rest(*known, self.now()):
                del self.accounts[place], self._looked[place]
            else:
                self._looked[place] = self._clock.wall()
