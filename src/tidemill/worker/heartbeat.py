"""Says what the worker holds, renews it, and brings news of running attempts to the store.

In production it lives in a thread with an event loop and a store handle of its own: a handler
that blocks the worker's loop for a minute does not cost the worker its leases. What it learns
(attempts that are no longer the worker's) is carried back to the worker's loop by `to_worker`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidemill.contract.store import Store
from tidemill.contract.wakeups import Listener, worker_topic
from tidemill.core.claims import Heartbeat as Beat
from tidemill.core.claims import Held, Said
from tidemill.errors import StoreError
from tidemill.telemetry.events import HeartbeatBroke, HeartbeatFailed
from tidemill.worker.attempt import LINGER, Attempt, Stop
from tidemill.worker.bell import ARMED_FOR
from tidemill.worker.emitter import Emitter, described, with_traceback
from tidemill.worker.hands import Hands
from tidemill.worker.options import WorkerOptions
from tidemill.worker.stats import Stats

NEWS_EVERY = 0.5
RETRY_AFTER = 1.0
"""A beat that failed is repeated soon: another whole period later a lease might be over."""
LAST_NEWS_EVERY = 0.02
"""An outcome waits for its attempt's last news, so that no line is lost; but a beat lists all that
is held, so there are at most fifty of these a second."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """How the worker shows up in the list of workers."""

    worker: str
    host: str = ""
    pid: int = 0


class Heartbeat:
    """`lose` is told which attempts are lost, `deliver` gets outcomes whose news has been sent."""

    def __init__(
        self,
        identity: Identity,
        options: WorkerOptions,
        hands: Hands,
        stats: Stats,
        emitter: Emitter,
        *,
        to_worker: Callable[..., Any],
        lose: Callable[[list[Attempt]], None],
        deliver: Callable[[list[Attempt]], None],
    ) -> None:
        self._identity, self._options = identity, options
        self._hands, self._stats, self._emitter = hands, stats, emitter
        self._to_worker, self._lose, self._deliver = to_worker, lose, deliver
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._last_words: deque[Attempt] = deque()
        self._news = False
        self._rung = False
        self._failing = False
        self.also_serves: tuple[str, ...] = ()

    def news(self) -> None:
        """A handler said something. Called from any thread, so it only leaves a mark."""
        if not self._news:
            self._news = True
            self._prod()

    def last_news(self, attempt: Attempt) -> bool:
        """Send what an ended attempt still has to say, then deliver its outcome. False: it has nothing.
        Before the heartbeat's thread is up, its first beat is waited for."""
        if not attempt.has_news:
            return False
        self._last_words.append(attempt)
        self._prod()
        return True

    def _prod(self) -> None:
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None:
            try:
                loop.call_soon_threadsafe(wake.set)
            except RuntimeError:  # it has just been closed: the worker is stopping
                return

    async def run(self, store: Store) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        listener = store.listen([worker_topic(self._identity.worker)])
        bell = asyncio.create_task(self._hear(listener, self._wake))
        try:
            while True:
                await self._beat(store)
                await self._until_next()
        finally:
            self._loop = None
            bell.cancel()
            await asyncio.gather(bell, return_exceptions=True)
            listener.close()
            self._release_last_words()

    async def farewell(self, store: Store) -> None:
        """A worker that holds nothing any more is off the list of workers at once."""
        await store.extend(self._message(self._hands.received, [], lease=0.0))

    async def _hear(self, listener: Listener, wake: asyncio.Event) -> None:
        """A cancelled job rings: beat at once and learn which one."""
        time, looked_away = asyncio.get_running_loop().time, False
        while True:
            listener.arm()
            armed = time()
            if looked_away:
                self._ring(wake)
            rung = await listener.wait(ARMED_FOR)
            listener.disarm()
            if rung:
                self._ring(wake)
            # While its store is away a listener cannot be armed, and is woken at once. What rings while it
            # rests for that is learned by a beat afterwards.
            rest = armed + RETRY_AFTER - time()
            looked_away = rung and rest > 0
            if looked_away:
                await asyncio.sleep(rest)

    def _ring(self, wake: asyncio.Event) -> None:
        self._rung = True
        wake.set()

    async def _until_next(self) -> None:
        assert self._loop is not None  # noqa: S101 - running
        assert self._wake is not None  # noqa: S101 - running
        beaten = self._loop.time()
        while (left := beaten + self._patience() - self._loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
            self._wake.clear()

    def _patience(self) -> float:
        """How long after the last beat the next one is due, as things stand."""
        if self._rung:
            return 0.0
        if self._last_words:
            return LAST_NEWS_EVERY
        usual = self._options.beat_every
        if self._failing:
            return min(RETRY_AFTER, usual)
        return min(NEWS_EVERY, usual) if self._news else usual

    async def _beat(self, store: Store) -> None:
        self._news = self._rung = False
        last_words = []
        while self._last_words:
            last_words.append(self._last_words.popleft())
        try:
            await self._say_what_is_held(store)
        except StoreError as error:
            self._missed(error)
        finally:  # whatever became of the news, the outcome must not be held up for ever
            if last_words:
                self._to_worker(self._deliver, last_words)
        self._measure_lag()

    async def _say_what_is_held(self, store: Store) -> None:
        received = self._hands.received  # before `held`: see Hands
        listed = list(self._hands.held.values())
        leased_until = listed[0].boot() + self._options.lease if listed else 0.0
        message = self._message(received, listed)
        extended = await store.extend(message)
        self._failing = False
        self._stats.beats += 1
        for attempt in listed:
            if attempt.news is not None:
                attempt.news.sent()
        lost = set(extended.lost)
        for attempt, held in zip(listed, message.held, strict=True):
            if held.renew and attempt.job.id not in lost:
                attempt.leased_until = leased_until
        if lost:
            self._to_worker(self._lose, [attempt for attempt in listed if attempt.job.id in lost])

    def _message(self, received: int, listed: list[Attempt], lease: float | None = None) -> Beat:
        now = asyncio.get_running_loop().time()
        return Beat(
            worker=self._identity.worker,
            received=received,
            lease=self._options.lease if lease is None else lease,
            held=tuple([held_as(attempt, now) for attempt in listed]),
            host=self._identity.host,
            pid=self._identity.pid,
            queues=(*self._options.queues, *self.also_serves),
            concurrency=self._options.concurrency,
        )

    def _missed(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            self._emitter.worker_event(HeartbeatFailed, **described(error))

    def broke(self, error: Exception) -> None:
        """Whoever runs it starts it again."""
        self._emitter.worker_event(HeartbeatBroke, **with_traceback(error))

    def _measure_lag(self) -> None:
        assert self._loop is not None  # noqa: S101 - running
        loop, asked = self._loop, self._loop.time()

        def answered() -> None:
            self._stats.loop_lag = max(0.0, loop.time() - asked)

        self._to_worker(answered)

    def _release_last_words(self) -> None:
        if self._last_words:
            self._to_worker(self._deliver, list(self._last_words))
            self._last_words.clear()


def _may_run_until(attempt: Attempt) -> float:
    """The executor moves the deadline of an attempt it has cancelled to when it gives it up."""
    return attempt.deadline if attempt.stop is Stop.TIMEOUT else attempt.deadline + LINGER


def held_as(attempt: Attempt, now: float) -> Held:
    job = attempt.job
    renew = attempt.outcome is not None or _may_run_until(attempt.call or attempt) > now
    news = attempt.news
    if news is None:
        return Held(job=job.id, fence=job.fence, claim=job.claim, renew=renew)
    fraction, note = news.take() or (None, None)
    return Held(
        job=job.id,
        fence=job.fence,
        claim=job.claim,
        renew=renew,
        progress=fraction,
        note=note,
        log=_with_ages(news.unsent, attempt.boot()) if news.unsent else (),
    )


def _with_ages(lines: Iterable[tuple[float, str]], now: float) -> tuple[Said, ...]:
    return tuple(Said(line, max(0.0, now - at)) for at, line in lines)
