"""Tells what happens: makes deliveries and messages of it, which are jobs like any other.

What this worker ended it tells at once. As leader it looks for what others ended and did not tell, and holds
the rules of alerts against what the store says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tidemill.contract.store import Store
from tidemill.core.courses import Advance, Course
from tidemill.errors import StoreError
from tidemill.telemetry.events import (
    AlertNotSent,
    AlertSent,
    ChoreBroke,
    ChoreFailed,
    JobDone,
    JobFailed,
    StoreBack,
    StoreLost,
)
from tidemill.worker.chores import every
from tidemill.worker.emitter import Emitter, described, with_traceback
from tidemill.worker.leader import Leader

if TYPE_CHECKING:
    from tidemill.telling.telling import Telling
    from tidemill.telling.webhook import Kept

LIST_EVERY = 10.0
"""How soon a webhook that somebody added holds."""
LOOK_EVERY = 5.0
TOLD_EVERY = 60.0
"""How much of what was told a new leader may look at again."""
GATHER = 0.05
AGAIN_IN = 1.0
MOST_UNTOLD = 100_000
"""What ends meanwhile is left to the leader."""
AT_ONCE = 500
CHORE = "tell"
_HEARD: Mapping[type[JobDone | JobFailed], str] = {JobDone: "job.done", JobFailed: "job.failed"}
"""By what a webhook calls it."""


class Teller:
    """`serve` is called when there is something to tell: this worker then runs the jobs that do. `look` is
    called when some were made."""

    def __init__(
        self,
        store: Store,
        telling: Telling,
        leader: Leader,
        emitter: Emitter,
        *,
        serve: Callable[[], None],
        look: Callable[[], None],
    ) -> None:
        from tidemill.telling.alerts.direct import Direct
        from tidemill.telling.finding import Finder

        self._store, self._telling, self._emitter = store, telling, emitter
        self._serve, self._look = serve, look
        self._loop = asyncio.get_running_loop()
        mark = _mark(telling)
        self._webhooks, self._alerts = leader.duty(f"webhooks {mark}"), leader.duty(f"alerts {mark}")
        self._kept: list[Kept] = []
        self._is_declared = self._is_listed = self._serves = False
        self._hears: tuple[type[JobDone | JobFailed], ...] = ()
        self._ended: deque[str] = deque()
        self._bell = asyncio.Event()
        self._finder = Finder(store, emitter.secrets)
        self._messages = 0
        self._broken: Mapping[str, Exception] = {}
        self._direct = Direct(telling, emitter.worker, self._wall, sent=self._sent, failed=self._not_sent)

    @property
    def made(self) -> int:
        """Jobs that came of it, or may have waited for somebody to serve their queue."""
        return self._finder.made + self._messages + self._serves

    def services(self) -> Iterator[Coroutine[Any, Any, None]]:
        """To be run side by side."""
        yield self._watch()
        yield self._tell_own()
        yield every(LOOK_EVERY, self._webhooks, self.find, self._emitter)
        if self._telling.rules:
            yield every(self._telling.every, self._alerts, self.alert, self._emitter)
        if self._direct.is_wanted:
            self._emitter.signals.subscribe(self._direct.lost, StoreLost)
            self._emitter.signals.subscribe(self._direct.back, StoreBack)

    async def begin(self) -> None:
        """Before the first job: what ended before its webhook was known is never told. Where the store does
        not answer yet, `_watch` asks again and says so."""
        if self._telling.webhooks:
            with suppress(StoreError):
                await self._list()

    async def with_deliveries(self, before: Course, advance: Advance) -> Advance:
        from tidemill.telling.flows import with_deliveries

        if not self._is_listed:  # a flow may end as soon as a worker starts
            await self._list()
        return with_deliveries(self._kept, before, advance)

    async def find(self) -> bool:
        """A chore of the leader's: what others ended and did not tell."""
        kept = self._kept  # those that are listed meanwhile were not looked for
        if not kept:
            return False
        now, before = (await self._store.read_clock()).wall, self._finder.made
        async for jobs in self._finder.ended(kept, now):
            await self._finder.tell(kept, self._bodies, jobs, now)
        pools = await self._find_pools(kept, now)
        for one in kept:
            changes = pools.get(one.name, {})
            if not 0 <= now - one.webhook.told < TOLD_EVERY:
                changes["told"] = now
            if changes:
                await self._note(one, **changes)
        if self._finder.made > before:
            self._look()
        return False

    async def alert(self) -> bool:
        """A chore of the leader's: what is wrong."""
        from tidemill.telling.alerts import round as rounds

        made, broken = await rounds.run(self._store, self._telling)
        self._messages += made
        if made:
            self._look()
        self._tell_broken(broken)
        return False

    def _tell_broken(self, broken: Mapping[str, Exception]) -> None:
        """Measures of the application's own, each once while it is."""
        for name in broken.keys() - self._broken.keys():
            self._emitter.worker_event(ChoreBroke, chore=f"alert {name}", **with_traceback(broken[name]))
        self._broken = broken

    async def finish(self) -> None:
        """For a worker that runs until nothing is left to do."""
        await self._list()
        await self.find()

    async def leave(self) -> None:
        """What this worker ended is told, and nobody misses it."""
        from tidemill.telling.alerts import round as rounds

        await self._direct.close()
        await rounds.leave(self._store, self._emitter.worker)
        await self._tell_ended()

    def close(self) -> None:
        """Nothing is heard any more."""
        for listener in (self._hear, self._direct.lost, self._direct.back):
            self._emitter.signals.unsubscribe(listener)

    async def _watch(self) -> None:
        failing = False
        while True:
            try:
                await self._list()
                failing = False
            except StoreError as error:
                if not failing:
                    self._emitter.worker_event(ChoreFailed, chore=CHORE, **described(error))
                failing = True
            except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
                self._emitter.worker_event(ChoreBroke, chore=CHORE, **with_traceback(error))
            await asyncio.sleep(LIST_EVERY)

    async def _list(self) -> None:
        from tidemill.telling import keeping
        from tidemill.telling.webhook import Origin

        declared = self._telling.webhooks
        if not self._is_declared:
            await keeping.declare(self._store, declared)
            self._is_declared = True
        self._kept = [
            one
            for one in await keeping.every(self._store)
            if one.webhook.origin is Origin.ADDED or one.name in declared
        ]
        if not self._serves and (self._kept or self._telling.rules):
            await keeping.bound_own_queue(self._store)
            self._serves = True
            self._serve()
        self._is_listed = True
        self._listen()

    def _listen(self) -> None:
        """Only to what somebody wants: an event that is heard is made for every job."""
        wanted = {what for one in self._kept for what in one.webhook.wanted.on}
        hears = tuple(kind for kind, what in _HEARD.items() if what in wanted)
        if hears != self._hears:
            self._hears = hears
            self._emitter.signals.unsubscribe(self._hear)
            if hears:
                self._emitter.signals.subscribe(self._hear, *hears)

    def _hear(self, event: JobDone | JobFailed) -> None:
        """Told where jobs end: as quick as can be."""
        if event.worker != self._emitter.worker or len(self._ended) >= MOST_UNTOLD:
            return
        what = _HEARD[type(event)]
        wanted = (one.webhook.wanted for one in self._kept if what in one.webhook.wanted.on)
        if any(w.wants_queue(event.queue) and (not w.tasks or event.task in w.tasks) for w in wanted):
            self._ended.append(event.job)
            self._bell.set()

    async def _tell_own(self) -> None:
        """What breaks here is found by the leader."""
        while True:
            await self._bell.wait()
            await asyncio.sleep(GATHER)
            try:
                await self._tell_ended()
            except StoreError:
                await asyncio.sleep(AGAIN_IN)
            except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
                self._emitter.worker_event(ChoreBroke, chore=CHORE, **with_traceback(error))

    async def _tell_ended(self) -> None:
        while self._ended:
            ids = [self._ended.popleft() for _ in range(min(AT_ONCE, len(self._ended)))]
            try:
                jobs = [job for job in await self._store.get(ids) if job is not None]
                made = await self._finder.tell(self._kept, self._bodies, jobs, self._wall())
            except (StoreError, asyncio.CancelledError):  # they may be pruned before the leader looks
                self._ended.extendleft(reversed(ids))
                raise
            if made:
                self._look()
        self._bell.clear()

    async def _find_pools(self, kept: Sequence[Kept], now: float) -> dict[str, dict[str, Any]]:
        """What is to be noted of webhooks, by their names."""
        from tidemill.telling.finding import changed_pools
        from tidemill.telling.webhook import What

        wanting = {What.POOL_CLOSED, What.POOL_OPENED}
        mine = [one for one in kept if wanting.intersection(one.webhook.wanted.on)]
        views = await self._store.pools() if mine else []
        changed: dict[str, dict[str, Any]] = {}
        for one in mine:
            found, closed = changed_pools(one.webhook, one.revision, views)
            if closed != one.webhook.closed:
                await self._finder.send(found, now)
                changed[one.name] = {"closed": closed}
        return changed

    async def _note(self, one: Kept, **changes: Any) -> None:
        """Only on what it was decided on; else the next look decides anew."""
        from msgspec.structs import replace

        from tidemill.telling import keeping

        after = await keeping.change(
            self._store,
            one.name,
            lambda before, _: None if before != one.webhook else replace(before, **changes),
        )
        self._kept = [after if after is not None and two.name == one.name else two for two in self._kept]

    @property
    def _bodies(self) -> dict[str, Any]:
        return {name: one.body for name, one in self._telling.webhooks.items()}

    def _wall(self) -> float:
        return self._emitter.wall(self._loop.time())

    def _sent(self, channel: str, message: Any) -> None:
        self._emitter.worker_event(AlertSent, channel=channel, title=message.title)

    def _not_sent(self, channel: str, error: Exception) -> None:
        self._emitter.worker_event(AlertNotSent, channel=channel, **described(error))


def _mark(telling: Telling) -> str:
    """The same for workers whose code tells the same."""
    known = "\0".join([*sorted(telling.webhooks), "", *sorted(telling.rules)])
    return blake2b(known.encode(), digest_size=6).hexdigest()
