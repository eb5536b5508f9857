"""A worker's chores, and which of them what the store says calls for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from tidemill.contract.coordinator import Led
from tidemill.contract.store import Store
from tidemill.contract.transactions import Transactional
from tidemill.contract.upkeep import Tended
from tidemill.contract.wakeups import ARRIVALS
from tidemill.core.courses import Kind
from tidemill.tallies.tally import TELL_EVERY, Tally
from tidemill.worker.admitter import Admitter
from tidemill.worker.advancer import Advancer
from tidemill.worker.bookkeeper import Bookkeeper
from tidemill.worker.chores import NEVER, every, when_rung
from tidemill.worker.duty import Duty
from tidemill.worker.emitter import Emitter
from tidemill.worker.leader import Leader
from tidemill.worker.options import WorkerOptions
from tidemill.worker.pruner import Pruner
from tidemill.worker.reclaimer import Reclaimer
from tidemill.worker.scheduler import Scheduler

TEND_EVERY = 5.0


class Rounds:
    """One request every `look_every` seconds keeps this worker's duties and says what there is to do. A chore
    asks the store nothing before that calls for it."""

    def __init__(self, store: Store, worker: str, options: WorkerOptions, emitter: Emitter) -> None:
        self._store, self._options, self._emitter = store, options, emitter
        self._reclaimer = Reclaimer(store, options.lease, emitter)
        self._reclaimed = -NEVER
        period = min(options.look_every, options.reclaim_every / 2)
        self.leader = Leader(store, worker, emitter, every=period, hear=self._hear)
        self._reclaim, self._prune = self.leader.duty("reclaim"), self.leader.duty("prune")
        # Not led: the leader might be the one worker that does not know the task.
        self._admit = Duty("admit", led=False)
        self._of: dict[Kind, Duty] = {}

    def services(
        self, admitter: Admitter, advancer: Advancer, scheduler: Scheduler, tally: Tally
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """To be run side by side."""
        store, emitter = self._store, self._emitter
        self._of = {Kind.FLOW: advancer.duty, Kind.SCHEDULE: scheduler.duty}
        yield every(NEVER, self._reclaim, self._reclaimer.reclaim, emitter)
        time = asyncio.get_running_loop().time
        pruner = Pruner(store, Bookkeeper(store, time), emitter, time)
        yield every(self._options.prune_every, self._prune, pruner.prune, emitter, rest=pruner.rest)
        yield every(TELL_EVERY, Duty("tell", led=False), lambda: tally.tell(store), emitter)
        yield every(NEVER, self._admit, admitter.admit, emitter)
        yield every(NEVER, advancer.duty, advancer.sweep, emitter, rest=advancer.rest)
        yield advancer.run()
        yield scheduler.run()
        if isinstance(store, Tended):
            yield every(TEND_EVERY, self.leader.duty("tend"), store.tend, emitter)
        # A listener costs an idle worker something, so there is one only where somebody rings.
        if isinstance(store, Transactional):
            yield when_rung(store, ARRIVALS, self._admit)
        yield self.leader.run()

    def _hear(self, led: Led, asked: float) -> None:
        now = asyncio.get_running_loop().time()
        self._reclaimer.watch(led.clock, asked)
        # Right behind a look at the clocks. Twice per period: a leader that died has been replaced before its
        # jobs' leases are over.
        if now - self._reclaimed >= self._options.reclaim_every / 2:
            self._reclaimed = now
            self._reclaim.call()
        if led.arrivals:
            self._admit.call()
        for kind, duty in self._of.items():
            if (due := led.dues[kind]) is not None:
                duty.call(now + due)
