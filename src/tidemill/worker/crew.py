"""The actors of a running worker, wired to each other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.core.claims import Claimed, Claims
from tidemill.core.outcomes import Release
from tidemill.core.pools import PoolSettings
from tidemill.errors import StoreError
from tidemill.tallies.tally import Tally
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.tasks.redaction import TaskSecrets
from tidemill.telemetry.events import JobLost, TaskUnknown
from tidemill.telemetry.signals import Signals
from tidemill.worker.admitter import Admitter
from tidemill.worker.advancer import Advancer
from tidemill.worker.attempt import Attempt, Stop
from tidemill.worker.call import in_calls
from tidemill.worker.drain import Drain
from tidemill.worker.emitter import Emitter
from tidemill.worker.executor import Executor
from tidemill.worker.hands import Hands
from tidemill.worker.heartbeat import Heartbeat, Identity
from tidemill.worker.options import WorkerOptions
from tidemill.worker.pace import Pace
from tidemill.worker.pool_telling import tell
from tidemill.worker.producer import Producer
from tidemill.worker.pulse import InThread, OnLoop
from tidemill.worker.pump import Pump
from tidemill.worker.rounds import Rounds
from tidemill.worker.runners.isolated import Isolation
from tidemill.worker.runners.threads import Threads
from tidemill.worker.scheduler import Scheduler
from tidemill.worker.settler import Settler
from tidemill.worker.spending import Metering
from tidemill.worker.stats import Stats
from tidemill.worker.teller import Teller
from tidemill.worker.times import Times

if TYPE_CHECKING:
    from tidemill.schedules.schedule import Wanted
    from tidemill.telling.telling import Telling

LAST_TRIP_WITHIN = 2.0
OWN_QUEUE = "tidemill"
"""Of the jobs by which we tell what happens: every worker serves it once there is something to tell."""


class Crew:
    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        options: WorkerOptions,
        worker: str,
        stats: Stats,
        *,
        pools: Mapping[str, PoolSettings],
        schedules: Mapping[str, Wanted],
        clock: Clock,
        entropy: Entropy,
        signals: Signals,
        tally: Tally,
        isolation: Callable[[int], Isolation],
        middleware: Sequence[Middleware],
        state: Any,
        telling: Telling | None = None,
        secrets: TaskSecrets | None = None,
    ) -> None:
        self._store, self._tasks, self._options = store, tasks, options
        self._stats, self._boot, self._tally = stats, clock.boot, tally
        self._loop = asyncio.get_running_loop()
        self._emitter = emitter = Emitter(
            signals, worker, clock, self._loop.time(), secrets or TaskSecrets(tasks)
        )
        self._metering = Metering(
            pools,
            store,
            lambda: emitter.wall(self._loop.time()),
            self._loop,
            emitter.job_event,
            tell_pools=partial(tell, emitter),
        )
        self._draining = False
        self._strangers: set[str] = set()
        self._hands = hands = Hands()
        pace = Pace(options.concurrency)
        self._threads = Threads(options.threads or options.concurrency)
        self._isolated = isolation(_processes(options)) if options.isolation else None
        self._executor = Executor(
            hands,
            stats,
            emitter,
            concurrency=options.concurrency,
            entropy=entropy,
            threads=self._threads,
            isolated=self._isolated,
            middleware=middleware,
            state=state,
            on_outcome=self._concluded,
            on_room=self._wake,
        )
        self._producer = Producer(options, worker, hands, pace=pace, tasks=tasks)
        self._rounds = Rounds(store, worker, options, emitter)
        self._advancer = Advancer(store, tasks, self._rounds.leader, emitter)
        self._pump = self._make_pump(pace, () if telling is None else (OWN_QUEUE,))
        self._drain = Drain(hands, self._executor, emitter, grace=options.grace, give_up=self._give_up)
        self._pumping: asyncio.Task[None] | None = None
        self._gave_up = False
        self._heartbeat = self._make_heartbeat(worker)
        self._admitter = Admitter(store, tasks)
        self._scheduler = Scheduler(store, tasks, schedules, self._rounds.leader, emitter)
        self._own_tasks = {} if telling is None else telling.tasks()
        self._teller = None if telling is None else self._make_teller(telling)

    def _make_pump(self, pace: Pace, also: Sequence[str]) -> Pump:
        return Pump(
            self._store,
            self._options,
            self._hands,
            pace=pace,
            producer=self._producer,
            settler=Settler(
                self._hands,
                self._stats,
                self._emitter,
                Times(self._tally.instruments, pace),
                self._advancer.note,
            ),
            boot=self._boot,
            adopt=self._adopt,
            stalled=self._hand_back_unstarted,
            also=also,
        )

    def _make_teller(self, telling: Telling) -> Teller:
        leader, emitter = self._rounds.leader, self._emitter
        teller = Teller(
            self._store, telling, leader, emitter, serve=self._serve_own_queue, look=self._pump.look
        )
        self._advancer.also = teller.with_deliveries
        return teller

    def _serve_own_queue(self) -> None:
        if OWN_QUEUE not in self._options.queues:
            self._producer.serve(OWN_QUEUE)
            self._heartbeat.also_serves = (OWN_QUEUE,)

    def _make_heartbeat(self, worker: str) -> Heartbeat:
        return Heartbeat(
            Identity(worker=worker, host=socket.gethostname(), pid=os.getpid()),
            self._options,
            self._hands,
            self._stats,
            self._emitter,
            to_worker=self._loop.call_soon_threadsafe,
            lose=self._lose,
            deliver=self._deliver,
        )

    def stop(self, *, hurry: bool) -> None:
        self._draining = True
        self._pump.stop_claiming()
        self._hand_back_unstarted()
        if hurry:
            self._drain.hurry()
        else:
            self._drain.begin()

    async def run(self) -> None:
        """Work until the pump has nothing left, then leave nothing behind."""
        where = InThread if self._options.heartbeat_thread else OnLoop
        pulse = where(self._heartbeat, self._store)
        try:
            if self._teller is not None:
                await self._teller.begin()
            async with asyncio.TaskGroup() as group:
                services = [group.create_task(service) for service in self._services()]
                self._pumping = asyncio.create_task(self._pump_until_over())
                await self._until_pumped(self._pumping)
                for service in services:
                    service.cancel()
        finally:
            await self._leave(pulse)

    async def _leave(self, pulse: InThread | OnLoop) -> None:
        """Nothing here waits long for a store that hangs, and a second cancellation skips only what waits."""
        try:
            await self._drain.end()
            await self._hand_back_everything()
            if self._isolated is not None:
                await self._isolated.drain()
        finally:
            self._executor.close()
            if self._teller is not None:
                self._teller.close()
            pulse.stop()
            self._threads.close()
            if self._isolated is not None:
                self._isolated.close()
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(2 * LAST_TRIP_WITHIN):
                await pulse.stopped(within=LAST_TRIP_WITHIN)
                await self._advancer.leave()
                if self._teller is not None:
                    await self._teller.leave()
                await self._rounds.leader.resign()
                await self._tally.tell(self._store)
                if not self._hands.held:
                    await self._heartbeat.farewell(self._store)

    def _give_up(self) -> None:
        self._gave_up = True
        if self._pumping is not None:
            self._pumping.cancel()

    async def _until_pumped(self, pumping: asyncio.Task[None]) -> None:
        try:
            await pumping
        except asyncio.CancelledError:
            pumping.cancel()
            if not self._gave_up:
                raise

    async def _pump_until_over(self) -> None:
        """Idle is who looked again after the last admission, and after the last step of a flow or tick
        of a schedule. The chore may have made it between the last look and its answer."""
        known = self._made_since
        await self._pump.run()
        while self._options.until_idle and not self._draining:
            await self._admit_the_rest()
            await self._advancer.finish()
            await self._scheduler.finish()
            if self._teller is not None:
                await self._teller.finish()
            if self._made_since == known:
                return
            known = self._made_since
            self._pump.look()
            await self._pump.run()

    @property
    def _made_since(self) -> int:
        """Jobs, or what may have made some, that came of chores so far."""
        told = 0 if self._teller is None else self._teller.made
        return self._admitter.admitted + self._advancer.advanced + self._scheduler.fired + told

    async def _hand_back_everything(self) -> None:
        """A drained worker holds nothing. One that was cancelled or broke still does, and says so once,
        so that nobody waits for its leases. A thread that goes on keeps its job until its lease is over."""
        if not self._hands.held:
            return
        self._hand_back_unstarted()
        for attempt in self._hands.held.values():
            self._executor.stop(attempt, Stop.DRAIN)
        await asyncio.sleep(0)  # handlers hear of it before others are told that they have stopped
        left = [one for one in self._hands.held.values() if not (one.call or one).lingers]
        settlements = [attempt.settlement(attempt.outcome or Release()) for attempt in left]
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_TRIP_WITHIN):
                await self._store.settle(settlements)

    def _services(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._pump.bell.run(),
            self._producer.watch_settings(self._store),
            *self._rounds.services(self._admitter, self._advancer, self._scheduler, self._tally),
            *(() if self._teller is None else self._teller.services()),
        ]

    async def _admit_the_rest(self) -> None:
        while await self._admitter.admit():
            pass

    def _adopt(self, claims: Claims, sent: float, sent_boot: float) -> None:
        """Take claimed jobs into hand and start as many as there are slots. The store leased them after the
        request was sent."""
        ahead = self._hands.ahead
        leased_until = sent_boot + self._options.lease
        for attempt in in_calls(self._taken(claims.jobs, sent, leased_until), sent):
            job = attempt.job
            if attempt.definition is None:
                self._tell_unknown(job)
                self._give_back(attempt, Release(unknown=True))
            elif attempt.shared or not job.call or job.call == job.id:
                ahead.append(attempt)
            else:  # a batch task once, and no longer: of what the call reserved only its lead may run
                self._give_back(attempt, Release())
        self._stats.claimed += len(claims.jobs)
        if self._draining:  # the claim was on its way when the worker was told to stop
            self._hand_back_unstarted()
        else:
            self._executor.fill()

    def _taken(self, jobs: Sequence[Claimed], sent: float, leased_until: float) -> Iterator[Attempt]:
        hands, tasks, news, boot = self._hands, self._tasks, self._heartbeat.news, self._boot
        metering, held, own = self._metering, hands.held, self._own_tasks
        for job in jobs:
            attempt = Attempt(job, tasks.get(job.task) or own.get(job.task), news, boot, metering)
            attempt.leased_until = leased_until
            if job.needs and (not job.call or job.call == job.id):
                attempt.reserved(sent)
                self._producer.met_pools()
            if job.extra:
                self._producer.met_pools()
            if job.id in held:
                if hands.knows(job):
                    continue
                self._lose([held[job.id]])  # claimed anew, so the older claim is over
            held[job.id] = attempt
            yield attempt

    def _tell_unknown(self, job: Claimed) -> None:
        """Once a task: the job goes back for another worker, and a typo would go round for a day."""
        if job.task not in self._strangers:
            self._strangers.add(job.task)
            known = tuple(sorted(self._tasks))
            self._emitter.worker_event(TaskUnknown, task=job.task, queue=job.queue, known=known)

    def _hand_back_unstarted(self) -> None:
        ahead = self._hands.ahead
        while ahead:
            attempt = ahead.popleft()
            if attempt.stop is None:
                self._give_back(attempt, Release())
        self._pump.wake()

    def _give_back(self, attempt: Attempt, outcome: Release) -> None:
        attempt.conclude(outcome)
        self._hands.outcomes.extend(attempt.settles())

    def _concluded(self, attempt: Attempt) -> None:
        if (attempt.news is not None or attempt.shared) and self._heartbeat.last_news(attempt):
            return
        if attempt.shared:
            self._hands.outcomes.extend(attempt.settles())
        else:
            self._hands.outcomes.append(attempt)
        if self._pump.resting is not None:
            self._pump.wake()

    def _wake(self) -> None:
        self._pump.wake()

    def _deliver(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            self._hands.outcomes.extend(attempt.settles())
        self._pump.wake()

    def _lose(self, attempts: list[Attempt]) -> None:
        """No longer ours: stop the code, say nothing more. An outcome on its way is left to the
        store, which refuses it if it has to."""
        for attempt in attempts:
            if attempt.outcome is None:
                self._emitter.attempt_event(JobLost, attempt, seconds=attempt.seconds(self._loop.time()))
                self._executor.stop(attempt, Stop.LOST)
                self._hands.forget(attempt)
        self._pump.wake()


def _processes(options: WorkerOptions) -> int:
    return options.isolated_processes or min(options.concurrency, os.cpu_count() or 1)
