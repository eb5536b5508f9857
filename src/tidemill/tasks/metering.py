"""What an attempt uses of its pools, and what their providers say, as its handler tells it.

A `Meter` stands where the handler runs: on the worker's loop, in a thread, in a process of its own. It
reads responses and exceptions there and passes on values only, to a `Tally`.

Which pool is meant: the one that is named; else that of the innermost `ctx.spend` around; else the
first of the task's own, which is the provider it calls.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from msgspec.structs import replace

from tidemill.core.departures import Departure
from tidemill.core.needs import Need, together
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import CLIENT_ERROR, Refusal
from tidemill.core.spending import Observation, Usage
from tidemill.core.units import IMPLIED, Units
from tidemill.core.windows import LEAVE_SHARE
from tidemill.errors import ConfigurationError, SnoozeFor, StoreError
from tidemill.hooks.calls import WatchedCall
from tidemill.tasks.classifiers import Classifiers
from tidemill.tasks.costs import problem_with_units, units_for
from tidemill.tasks.pools import Pool, PoolUse
from tidemill.tasks.watched_calls import Calls

SHORT_WAIT = 5.0
"""A wait in the middle of a handler keeps its slot; a longer one gives the job back."""
ASK_AGAIN = 0.25
LONGEST_SNOOZE = 3600.0
NOBODY_KNOWS = 60.0
"""When to try again where only a call that ends, or a person, can free units."""
MOST_LINKS = 10
_NO_RESPONSE = (str, bytes, int, float, list, set)
"""What no client answers with. An answer that names no usage is an answer all the same."""


class WaitsForUnits(SnoozeFor):
    """A handler asked for more than its pools have. `needs` are what it has asked for in this attempt."""

    def __init__(self, needs: tuple[Need, ...], delay: float, reason: str) -> None:
        super().__init__(delay, reason)
        self.needs = needs


_INSIDE: ContextVar[Need | None] = ContextVar("tidemill_spend", default=None)
_FIRST_CALL = threading.Lock()


class Tally(Protocol):
    """Where it adds up: the worker's record of the attempt, or the pipe to it. Any thread may tell."""

    def used(self, usage: Usage, number: int | None = None) -> None:
        """With a number it replaces the usage that has the same number."""
        ...

    def heard(self, seen: Observation, *, watched: bool = False) -> None:
        """`watched`: a hook saw the answer, and the client may try again by itself."""
        ...

    def warned(self, problem: str) -> None:
        """What the handler told is of no use, or a classifier of the application failed."""
        ...

    def wall(self) -> float:
        """The store's wall time, as far as it is known here."""
        ...

    def left(self) -> float:
        """Seconds until the attempt's timeout."""
        ...

    async def reserve(self, need: Need) -> float | None:
        """As `contract.pools.Pools.reserve`, for this claim."""
        ...

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def late_at(self) -> float:
        """From when on a request that leaves is late, for the units taken with the claim, by `now`."""
        ...

    async def depart(self, need: Need, departure: Departure) -> None:
        """Tell the pool of a request that is about to leave; returns when it knows, or after a short wait."""
        ...

    def depart_sync(self, need: Need, departure: Departure) -> None: ...

    def departed(self, need: Need, departure: Departure) -> None:
        """`depart` for a request that has left already: returns at once."""
        ...


class Meter:
    def __init__(
        self,
        needs: tuple[Need, ...],
        pools: Mapping[str, PoolSettings],
        tally: Tally,
        classifiers: Classifiers | None = None,
    ) -> None:
        self._needs, self._tally, self._classifiers = needs, tally, classifiers
        self._pools = {need.pool: pools[need.pool] for need in needs if need.pool in pools}
        self._told: list[tuple[BaseException, Refusal | None]] = []
        self._answered: dict[tuple[str, str | None], Refusal | None] = {}
        self.reported: Refusal | None = None
        """The refusal that the handler reported with `ctx.used`, unless a later answer succeeded. Only of
        pools that the job needs: no other holds it back, and it would start again at once."""
        self._spends: tuple[Need, ...] = ()
        self._calls: Calls | None = None

    def begin_call(self, pool: Pool) -> WatchedCall | None:
        """A hook sees a request to that pool. None when the key of a keyed pool is unknown."""
        try:
            need = self._meant(pool, None)
        except ConfigurationError as error:
            self._tally.warned(str(error).replace("used:", "watch:", 1))
            return None
        if need is None:
            return None
        return self._watched().begin(need, pool.settings.guards.jitter)

    def _watched(self) -> Calls:
        with _FIRST_CALL:
            if self._calls is None:
                self._calls = Calls(self._tally, self._told_by)
                for need in self._needs:
                    self._calls.reserved(need, self._tally.late_at())
            return self._calls

    def _told_by(self, need: Need, source: Any) -> tuple[Units, Refusal | None]:
        return self._read(need, source, watched=True), self._answered.get((need.pool, need.key))

    def used(self, pool: Any, response: Any, key: str | None, units: Units) -> None:
        """As `Context.used`: a lone argument may be either. What nobody counts or can read is a mistake, and
        is told and not raised: the call it is about is made and paid for, and a failed attempt makes it
        again."""
        if response is None and not isinstance(pool, Pool):
            pool, response = None, pool
        if not isinstance(pool, Pool | None):
            raise TypeError(f"used: the first of two must be a pool, is {type(pool).__name__}")
        need = self._meant(pool, key)
        if need is None:
            self._tally.warned("used: the task has no pool, so nobody counts it; give it one with pool=…")
            return
        self._doubt(need, units)
        told = units
        if response is None:
            self.reported = None  # a call was made whose answer is known
        else:
            units = {**self._read(need, response, by_hand=True), **units}
        if not units:
            return
        call = None if self._calls is None else self._calls.same_as((need.pool, need.key))
        if call is None:
            self._tally.used(Usage(pool=need.pool, key=need.key, units=units))
        else:
            # The hook has counted this call and each of its retries as a request.
            if "requests" not in told:
                units.pop("requests", None)
            call.corrected(units)

    def refused(self, error: BaseException) -> Refusal | None:
        """What a provider meant by the exception that ended the handler, told unless it was before. Never
        raises: the attempt must end."""
        for one, refusal in self._told:
            if any(link is one for link in _links(error)):
                return refusal
        need = self._meant(None, None)
        if need is None:
            return None
        try:
            self._read(need, error)
        except Exception:  # noqa: BLE001 - an exception may be any object of anybody's
            return None
        return self._told[-1][1]

    @asynccontextmanager
    async def spend(self, pool: Pool, key: str | None, units: Units) -> AsyncIterator[None]:
        need = _needed(pool, key, units)
        self._meet(pool)
        late_at = await self._reserve(need)
        self._watched().reserved(need, late_at)
        self._spends = together(self._spends, (need,))
        before = _INSIDE.set(need)
        try:
            yield
        except Exception as error:
            self.refused(error)
            raise
        finally:
            _INSIDE.reset(before)

    async def take(self, needs: tuple[Need, ...], uses: Sequence[PoolUse]) -> None:
        """What a claim takes, for a job that was not made with it: before its handler runs."""
        for need, use in zip(needs, uses, strict=True):
            self._meet(use.pool)
            late_at = await self._reserve(need)
            self._watched().reserved(need, late_at)
            self._spends = together(self._spends, (need,))
        self._needs = needs

    async def _reserve(self, need: Need) -> float:
        """From when on a request with these units leaves late."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + min(SHORT_WAIT, self._tally.left())
        jitter = self._pools[need.pool].guards.jitter
        while True:
            asked, began = loop.time(), self._tally.now()
            try:
                wait = await self._tally.reserve(need)
            except StoreError:
                wait = ASK_AGAIN
            else:
                # Units that arrived too late count for a call that can no longer be made in time.
                if wait is None and loop.time() - asked <= jitter:
                    return began + LEAVE_SHARE * jitter
            wait = ASK_AGAIN if wait is None else wait
            if loop.time() + wait > give_up:
                raise _come_back(self._waits_for(need), need, wait)
            await asyncio.sleep(max(wait, 0.001))

    def _waits_for(self, need: Need) -> tuple[Need, ...]:
        """All it asked for in this attempt, since the next one will ask again, if its pools can ever give it
        at once; else what it lacks now."""
        everything = together(self._spends, (need,))
        if self._problem_with(everything) is None:
            return everything
        if problem := self._problem_with((need,)):
            raise ConfigurationError(f"spend: beside what its task takes, {problem}")
        return (need,)

    def _problem_with(self, extra: tuple[Need, ...]) -> str | None:
        for need in together(self._needs, extra):
            settings = self._pools.get(need.pool)
            if settings is not None and (problem := settings.problem_with(need.units)):
                return f"pool {need.pool!r}: {problem}"
        return None

    def _meant(self, pool: Pool | None, key: str | None) -> Need | None:
        inside = _INSIDE.get()
        if pool is None:
            return inside or (self._needs[0] if self._needs else None)
        for need in (inside, *self._needs):
            if need is not None and need.pool == pool.name and key in (None, need.key):
                return need
        if pool.settings.keyed is not (key is not None):
            raise ConfigurationError(f"used: {_which(pool)}")
        self._meet(pool)
        return Need(pool.name, key)

    def _meet(self, pool: Pool) -> None:
        self._pools.setdefault(pool.name, pool.settings)
        self._classifiers = self._classifiers or pool.classifiers

    def _doubt(self, need: Need, units: Units) -> None:
        """Units said by hand. A response may name more than the pool counts."""
        settings = self._pools.get(need.pool)
        counted = [] if settings is None else sorted({limit.unit for limit in settings.limits})
        for unit in units:
            if counted and unit not in counted and unit not in IMPLIED:
                self._tally.warned(
                    f"used: no limit of pool {need.pool!r} counts {unit}; it counts {', '.join(counted)}"
                )

    def _read(self, need: Need, source: Any, *, by_hand: bool = False, watched: bool = False) -> Units:
        """What was used, by a response or an exception; what it says about the pool is told."""
        from tidemill.feedback import observation, read

        own = () if self._classifiers is None else self._classifiers.of(need.pool)
        reading = read(source, now=self._tally.wall(), classifiers=own)
        for problem in reading.problems:
            self._tally.warned(problem)
        seen = Observation(pool=need.pool, key=need.key, refusal=reading.refusal)
        if (settings := self._pools.get(need.pool)) is not None:
            seen = observation(need.pool, settings, reading, need.key)
        seen = self._whole(seen, source)
        if watched:
            if seen.refusal is not None or _succeeded(source):
                self._tally.heard(seen, watched=True)
        elif seen.remaining or seen.amounts or seen.refusal is not None:
            self._tally.heard(seen)
        elif by_hand and reading.usage is None and isinstance(source, _NO_RESPONSE):
            self._tally.warned(
                f"used: a {type(source).__name__} says nothing of what a call used; give the response of the "
                "client, or amounts by unit, such as used(tokens=700)"
            )
        if isinstance(source, BaseException):
            self._told.append((source, seen.refusal))
        # A response is an answer to a call: two of them are two calls, whatever was reserved.
        return {"requests": 1.0, **(reading.usage or {})}

    def _whole(self, seen: Observation, source: Any) -> Observation:
        """The exception some clients make of an answer has its status and not its words: when the handler
        gave the answer itself before, that says what was meant."""
        place = (seen.pool, seen.key)
        if not isinstance(source, BaseException):
            self._answered[place] = seen.refusal
            if seen.refusal is None or any((need.pool, need.key) == place for need in self._needs):
                self.reported = seen.refusal
            return seen
        before = self._answered.get(place)
        if before is None or seen.refusal is None or before.status != seen.refusal.status:
            return seen
        return replace(seen, refusal=before)


def _succeeded(answer: Any) -> bool:
    return bool(answer.status_code < CLIENT_ERROR)


def _links(error: BaseException | None) -> list[BaseException]:
    """An exception and what it was raised from."""
    links: list[BaseException] = []
    while error is not None and len(links) < MOST_LINKS:
        links.append(error)
        error = error.__cause__ or error.__context__
    return links


def _needed(pool: Any, key: str | None, units: Units) -> Need:
    if not isinstance(pool, Pool):
        raise ConfigurationError(f"spend: pool: must be what app.pool(…) returned, is {pool!r}")
    if pool.settings.keyed is not (key is not None):
        raise ConfigurationError(f"spend: {_which(pool)}")
    units = units_for(pool, units)
    if problem := problem_with_units(units, [PoolUse(pool)]) or pool.settings.problem_with(units):
        raise ConfigurationError(f"spend: pool {pool.name!r}: {problem}")
    return Need(pool.name, key, units)


def _which(pool: Pool) -> str:
    if pool.settings.keyed:
        return f"pool {pool.name!r} is keyed: say which of its windows is meant by key=…"
    return f"pool {pool.name!r} is not keyed: leave out key"


def _come_back(needs: tuple[Need, ...], lacking: Need, wait: float) -> WaitsForUnits:
    """A batch comes back by time."""
    delay = NOBODY_KNOWS if math.isinf(wait) else min(wait, LONGEST_SNOOZE)
    return WaitsForUnits(needs, delay, f"waits for pool {lacking.name}")
