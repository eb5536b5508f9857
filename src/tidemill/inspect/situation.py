"""What a forecast is made from, read together: pools, what waits for them, and who works."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from tidemill.contract.pools import PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import LOOKS, WorkerInfo
from tidemill.contract.store import Store
from tidemill.core.accounts import Account
from tidemill.core.demand import Demand
from tidemill.core.filters import Filter
from tidemill.core.forecast.known import Known, know
from tidemill.core.forecast.meeting import Crew
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import DAY, Pause
from tidemill.core.states import State
from tidemill.core.windows import Instant

LOOKED_AT = 100
"""How long a call takes is the mean over so many of the last jobs that are done ..."""
SPANS = (60.0, 3600.0, DAY, 30 * DAY)
"""... in the shortest of these spans in which any was: those that wait may lie above all of them."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    now: Instant
    pools: Sequence[PoolView]
    demand: Sequence[Demand]
    queues: Sequence[QueueInfo]
    workers: Sequence[WorkerInfo]
    running: dict[str, int]

    def known(self) -> Ledger:
        return Ledger(self)

    def weight(self, queue: str) -> float:
        return next((float(info.settings.weight) for info in self.queues if info.name == queue), 1.0)

    def pause(self, queue: str) -> Pause | None:
        """The one that holds now."""
        pauses = (info.pause for info in self.queues if info.name == queue)
        return next((pause for pause in pauses if pause is not None and pause.closed(self.now.wall)), None)

    def opens(self, queue: str) -> float:
        """Seconds until a queue's pause ends, 0 when there is none."""
        pause = self.pause(queue)
        if pause is None:
            return 0.0
        return math.inf if pause.until is None else pause.until - self.now.wall

    def serving(self, queues: Sequence[str]) -> list[WorkerInfo]:
        return [worker for worker in self.workers if set(queues) & set(worker.queues)]

    def crew(self, queues: Sequence[str]) -> Crew:
        """Those that serve one of the queues. Where nobody works yet, workers are no bound."""
        serving = self.serving(queues)
        bounded = [info for info in self.queues if info.settings.concurrency is not None]
        return Crew(
            slots=sum(worker.concurrency for worker in serving) or None,
            taken=sum(worker.holds for worker in serving),
            at_once={info.name: float(info.settings.concurrency or 0) for info in bounded},
            running={info.name: float(self.running.get(info.name, 0)) for info in bounded},
        )


class Ledger:
    """Finds what is known of a pool or one of its keys. A key nobody has used yet is unused."""

    def __init__(self, situation: Situation) -> None:
        self._now = situation.now
        self._views = {(view.name, view.key): view for view in situation.pools}
        self._known: dict[tuple[str, str | None], Known | None] = {}

    def __call__(self, place: tuple[str, str | None]) -> Known | None:
        if place not in self._known:
            self._known[place] = self._look(place)
        return self._known[place]

    def _look(self, place: tuple[str, str | None]) -> Known | None:
        if place in self._views:
            return know(self._views[place], self._now)
        pool = self._views.get((place[0], None))
        if pool is None:
            return None
        return know(msgspec.structs.replace(pool, key=place[1], account=Account()), self._now)


async def look(
    store: Store,
    declared: Mapping[str, PoolSettings] | None = None,
    demand: Sequence[Demand] | None = None,
) -> Situation:
    """`declared` are pools that the code has and the store may not know yet: they are unused. `demand` is
    what was read before, for whom that is good enough."""
    counts = await store.counts()
    reading = await store.read_clock()
    pools = await store.pools()
    known = {view.name for view in pools}
    pools += [unused(name, pool) for name, pool in (declared or {}).items() if name not in known]
    return Situation(
        now=Instant(reading.wall, reading.boot),
        pools=pools,
        demand=await store.demand() if demand is None else demand,
        queues=await store.queues(),
        workers=await store.workers(),
        running={queue: states.get(State.RUNNING, 0) for queue, states in counts.items()},
    )


def unused(name: str, pool: PoolSettings) -> PoolView:
    return PoolView(
        name=name,
        key=None,
        declared=pool,
        override=None,
        limits=(),
        closures=(),
        closed=None,
        reservations=0,
        foreign={},
        ramp=None,
        account=Account(),
    )


async def mean_time(store: Store, queue: str, task: str | None = None) -> float | None:
    """How long the last jobs of a queue, or of a task on it, took; None when none is known."""
    now = (await store.read_clock()).wall
    for span in SPANS:
        wanted = Filter(queue=queue, task=task, states=(State.DONE,), since=now - span, time="finished")
        done = (await store.find(wanted, LOOKED_AT, looks=LOOKS)).jobs
        if done:
            break
    took = [max(0.0, job.finished - job.started) for job in done if job.finished and job.started]
    return sum(took) / len(took) if took else None
