"""Usage reports of a handler: the units that its calls used, and the limits and refusals that providers
report.

A `UsageMeter` runs where the handler runs: on the event loop, in a thread or in a child process. It passes
simple values to a `UsageSink`.

A report belongs to the pool that it names, else to the pool of the innermost `ctx.spend`, else to the first
pool of the task."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from tidemill.core.feedback import MIN_REFUSAL_STATUS, Observation, PoolUsage, Refusal
from tidemill.core.needs import IMPLIED, Need, Units, combine_needs
from tidemill.core.pools import PoolSettings
from tidemill.core.windows import SEND_SHARE
from tidemill.errors import ConfigurationError, DependencyUnavailable, SnoozeFor, StoreError
from tidemill.hooks.watched_call import WatchedCall
from tidemill.tasks.costs import problem_with_units, units_for
from tidemill.tasks.pools import Classifiers, Pool, PoolUse
from tidemill.tasks.watched_calls import MeteredCalls, UsageSink

MAX_WAIT_IN_HANDLER_SECONDS = 5.0
"""A wait inside a handler occupies its slot; for a longer wait the job is released."""
RETRY_SECONDS = 0.25
MAX_SNOOZE_SECONDS = 3600.0
UNKNOWN_WAIT_SECONDS = 60.0
"""When to try again if only the end of a call, or a person, can free units."""
MAX_EXCEPTION_CHAIN = 10
_NON_RESPONSE_TYPES = (str, bytes, int, float, list, set)
"""Types that no client returns as a response. A response without usage is still a response."""


class UnitsUnavailable(SnoozeFor):
    """Raised if units of a pool cannot be reserved soon. The attempt ends and does not count. The job waits
    for `needs`."""

    def __init__(self, needs: tuple[Need, ...], delay: float, reason: str) -> None:
        super().__init__(delay, reason)
        self.needs = needs


_CURRENT_SPEND: ContextVar[Need | None] = ContextVar("tidemill_spend", default=None)
_CALLS_LOCK = threading.Lock()


class UsageMeter:
    def __init__(
        self,
        needs: tuple[Need, ...],
        pools: Mapping[str, PoolSettings],
        sink: UsageSink,
        classifiers: Classifiers | None = None,
    ) -> None:
        self._needs, self._sink, self._classifiers = needs, sink, classifiers
        self._pools = {need.pool: pools[need.pool] for need in needs if need.pool in pools}
        self._seen_exceptions: list[tuple[BaseException, Refusal | None]] = []
        self._refusal_by_pool: dict[tuple[str, str | None], Refusal | None] = {}
        self.reported: Refusal | None = None
        """The refusal that the handler reported with `ctx.used`, unless a later response succeeded.

        Only of pools that the job needs: no other pool delays the job, and it would start again at once."""
        self._spends: tuple[Need, ...] = ()
        self._calls: MeteredCalls | None = None

    def begin_call(self, pool: Pool) -> WatchedCall | None:
        """Starts to record a request that a client hook has seen. Returns None and logs a warning if the key
        of a keyed pool is unknown."""
        try:
            need = self._resolve_need(pool, None)
        except ConfigurationError as error:
            self._sink.warn(str(error).replace("used:", "watch:", 1))
            return None
        if need is None:
            return None
        return self._watched().begin(need, pool.settings.guards.jitter)

    def _watched(self) -> MeteredCalls:
        with _CALLS_LOCK:
            if self._calls is None:
                self._calls = MeteredCalls(self._sink, self._read_watched)
                for need in self._needs:
                    self._calls.reserved(need, self._sink.late_at())
            return self._calls

    def _read_watched(self, need: Need, source: Any) -> tuple[Units, Refusal | None]:
        return self._read(need, source, watched=True), self._refusal_by_pool.get((need.pool, need.key))

    def used(self, pool: Any, response: Any, key: str | None, units: Units) -> None:
        """Reports the usage of a call; see `Context.used`. If `response` is None, `pool` may be a response
        instead of a pool.

        Most mistakes are logged and raise no error, because a retry would pay for the call again."""
        if response is None and not isinstance(pool, Pool):
            pool, response = None, pool
        if not isinstance(pool, Pool | None):
            raise TypeError(f"used: the first of two must be a pool, is {type(pool).__name__}")
        need = self._resolve_need(pool, key)
        if need is None:
            self._sink.warn("used: the task has no pool, so it is not counted; give it one with pool=…")
            return
        self._check_units(need, units)
        given_units = units
        if response is None:
            self.reported = None  # a call was made whose outcome is known
        else:
            units = {**self._read(need, response, by_hand=True), **units}
        if not units:
            return
        call = None if self._calls is None else self._calls.find_reported_call((need.pool, need.key))
        if call is None:
            self._sink.used(PoolUsage(pool=need.pool, key=need.key, units=units))
        else:
            # The hook has counted this call and each of its retries as a request.
            if "requests" not in given_units:
                units.pop("requests", None)
            call.correct(units)

    def refused(self, error: BaseException) -> Refusal | None:
        """Returns the provider's refusal in the exception that ended the handler; None if it is no refusal.

        Reports the exception, unless it was reported before. Never raises. A `DependencyUnavailable` is no
        refusal."""
        # A response in its cause came from the dependency, not from the pool's provider.
        if isinstance(error, DependencyUnavailable):
            if self._calls is not None:
                self._calls.report_unanswered()
            return None
        for seen, refusal in self._seen_exceptions:
            if any(link is seen for link in _exception_chain(error)):
                return refusal
        need = self._resolve_need(None, None)
        if need is None:
            return None
        try:
            self._read(need, error)
        except Exception:  # noqa: BLE001 - the exception may be any object
            return None
        return self._seen_exceptions[-1][1]

    @asynccontextmanager
    async def spend(self, pool: Pool, key: str | None, units: Units) -> AsyncIterator[None]:
        need = _make_spend_need(pool, key, units)
        self._remember_pool(pool)
        late_at = await self._reserve(need)
        self._watched().reserved(need, late_at)
        self._spends = combine_needs(self._spends, (need,))
        before = _CURRENT_SPEND.set(need)
        try:
            yield
        except Exception as error:
            self.refused(error)
            raise
        finally:
            _CURRENT_SPEND.reset(before)

    async def take(self, needs: tuple[Need, ...], uses: Sequence[PoolUse]) -> None:
        """Reserves `needs` before the handler runs. Use it only for a job whose needs were unknown at its
        creation."""
        for need, use in zip(needs, uses, strict=True):
            self._remember_pool(use.pool)
            late_at = await self._reserve(need)
            self._watched().reserved(need, late_at)
            self._spends = combine_needs(self._spends, (need,))
        self._needs = needs

    async def _reserve(self, need: Need) -> float:
        """Waits until the units are reserved. Returns the time, by `UsageSink.now`, after which a request is
        late.

        Raises UnitsUnavailable if the wait would be longer than 5 s, or longer than the attempt may still
        run."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + min(MAX_WAIT_IN_HANDLER_SECONDS, self._sink.left())
        jitter = self._pools[need.pool].guards.jitter
        while True:
            sent_at, started = loop.time(), self._sink.now()
            try:
                wait = await self._sink.reserve(need)
            except StoreError:
                wait = RETRY_SECONDS
            else:
                # Units granted later than the jitter are for a call that can no longer be made in time.
                if wait is None and loop.time() - sent_at <= jitter:
                    return started + SEND_SHARE * jitter
            wait = RETRY_SECONDS if wait is None else wait
            if loop.time() + wait > give_up:
                raise _make_units_unavailable(self._needs_to_wait_for(need), need, wait)
            await asyncio.sleep(max(wait, 0.001))

    def _needs_to_wait_for(self, need: Need) -> tuple[Need, ...]:
        """Returns the units that must be available before the job runs again: all that this attempt reserved
        or requested.

        If the pools can never grant all of them together, returns only `need`."""
        everything = combine_needs(self._spends, (need,))
        if self._problem_with(everything) is None:
            return everything
        if problem := self._problem_with((need,)):
            raise ConfigurationError(f"spend: beside what its task takes, {problem}")
        return (need,)

    def _problem_with(self, deferred: tuple[Need, ...]) -> str | None:
        for need in combine_needs(self._needs, deferred):
            settings = self._pools.get(need.pool)
            if settings is not None and (problem := settings.problem_with(need.units)):
                return f"pool {need.pool!r}: {problem}"
        return None

    def _resolve_need(self, pool: Pool | None, key: str | None) -> Need | None:
        inside = _CURRENT_SPEND.get()
        if pool is None:
            return inside or (self._needs[0] if self._needs else None)
        for need in (inside, *self._needs):
            if need is not None and need.pool == pool.name and key in (None, need.key):
                return need
        if pool.settings.keyed is not (key is not None):
            raise ConfigurationError(f"used: {_key_hint(pool)}")
        self._remember_pool(pool)
        return Need(pool.name, key)

    def _remember_pool(self, pool: Pool) -> None:
        self._pools.setdefault(pool.name, pool.settings)
        self._classifiers = self._classifiers or pool.classifiers

    def _check_units(self, need: Need, units: Units) -> None:
        """Warns about units given by hand that no limit of the pool counts. Units from a response are not
        checked."""
        settings = self._pools.get(need.pool)
        counted = [] if settings is None else sorted({limit.unit for limit in settings.limits})
        for unit in units:
            if counted and unit not in counted and unit not in IMPLIED:
                self._sink.warn(
                    f"used: no limit of pool {need.pool!r} counts {unit}; it counts {', '.join(counted)}"
                )

    def _read(self, need: Need, source: Any, *, by_hand: bool = False, watched: bool = False) -> Units:
        """Returns the units that a response or exception reports. Passes its limits and its refusal to the
        pool.

        - `by_hand`: True if the handler called `ctx.used`.
        - `watched`: True if a client hook saw the response."""
        from tidemill.feedback import build_observation, read_feedback

        own = () if self._classifiers is None else self._classifiers.of(need.pool)
        reading = read_feedback(source, now=self._sink.wall(), classifiers=own)
        for problem in reading.problems:
            self._sink.warn(problem)
        seen = Observation(pool=need.pool, key=need.key, refusal=reading.refusal)
        if (settings := self._pools.get(need.pool)) is not None:
            seen = build_observation(need.pool, settings, reading, need.key)
        seen = self._with_known_refusal(seen, source)
        if watched:
            if seen.refusal is not None or _is_success(source):
                self._sink.observe(seen, watched=True)
        elif seen.remaining or seen.amounts or seen.refusal is not None:
            self._sink.observe(seen)
        elif by_hand and reading.usage is None and isinstance(source, _NON_RESPONSE_TYPES):
            self._sink.warn(
                f"used: a {type(source).__name__} says nothing of what a call used; give the response of the "
                "client, or amounts by unit, such as used(tokens=700)"
            )
        if isinstance(source, BaseException):
            self._seen_exceptions.append((source, seen.refusal))
        # Each response is one call, so two responses are two requests, even if one was reserved.
        return {"requests": 1.0, **(reading.usage or {})}

    def _with_known_refusal(self, seen: Observation, source: Any) -> Observation:
        """Returns `seen`, the observation read from `source`, a response or exception. An exception gets the
        refusal of the pool's last response, if both have the same status."""
        pool_key = (seen.pool, seen.key)
        if not isinstance(source, BaseException):
            self._refusal_by_pool[pool_key] = seen.refusal
            if seen.refusal is None or any((need.pool, need.key) == pool_key for need in self._needs):
                self.reported = seen.refusal
            return seen
        before = self._refusal_by_pool.get(pool_key)
        if before is None or seen.refusal is None or before.status != seen.refusal.status:
            return seen
        return replace(seen, refusal=before)


def _is_success(answer: Any) -> bool:
    return bool(answer.status_code < MIN_REFUSAL_STATUS)


def _exception_chain(error: BaseException | None) -> list[BaseException]:
    """Returns an exception and the exceptions it was raised from."""
    links: list[BaseException] = []
    while error is not None and len(links) < MAX_EXCEPTION_CHAIN:
        links.append(error)
        error = error.__cause__ or error.__context__
    return links


def _make_spend_need(pool: Any, key: str | None, units: Units) -> Need:
    if not isinstance(pool, Pool):
        raise ConfigurationError(f"spend: pool: must be what app.pool(…) returned, is {pool!r}")
    if pool.settings.keyed is not (key is not None):
        raise ConfigurationError(f"spend: {_key_hint(pool)}")
    units = units_for(pool, units)
    if problem := problem_with_units(units, [PoolUse(pool)]) or pool.settings.problem_with(units):
        raise ConfigurationError(f"spend: pool {pool.name!r}: {problem}")
    return Need(pool.name, key, units)


def _key_hint(pool: Pool) -> str:
    if pool.settings.keyed:
        return f"pool {pool.name!r} is keyed: say which of its windows is meant by key=…"
    return f"pool {pool.name!r} is not keyed: leave out key"


def _make_units_unavailable(needs: tuple[Need, ...], lacking: Need, wait: float) -> UnitsUnavailable:
    """Returns the error that delays the job for `wait` seconds: at most one hour, or 60 s if `wait` is
    infinite.

    `lacking`: the need that could not be reserved."""
    delay = UNKNOWN_WAIT_SECONDS if math.isinf(wait) else min(wait, MAX_SNOOZE_SECONDS)
    return UnitsUnavailable(needs, delay, f"waits for pool {lacking.name}")
