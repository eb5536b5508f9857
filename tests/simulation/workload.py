"""Simulated producers, and an external producer that writes arrivals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from tests.simulation.handlers import USES, Kind, Script
from tests.simulation.network import Network
from tests.simulation.outcome_log import OutcomeLog
from tests.simulation.provider import need_of
from tests.simulation.trace import Trace
from tidemill.client.enqueuer import JobEnqueuer
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.queues import InsertVerdict, QueueSettings, Retention
from tidemill.core.unique_keys import OnConflict, Unique
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore

QUEUES = ("plain", "keyed", "narrow", "short")
_KINDS: tuple[Kind, ...] = ("quick", "long", "flaky", "later", "snooze", "hopeless", "stuck", "poison")
_WEIGHTS = (40, 15, 12, 5, 8, 4, 3, 4)
_CONFLICTS: tuple[OnConflict, ...] = ("skip", "replace", "merge", "rerun")


def queue_settings(chance: random.Random) -> dict[str, QueueSettings]:
    few = Retention(age=None, count=chance.choice((1, 5, 1000)))
    base = QueueSettings(keep_done=few, keep_cancelled=few)
    return {
        "plain": base,
        "keyed": replace(base, key_concurrency=chance.choice((1, 2))),
        "narrow": replace(base, concurrency=chance.choice((1, 2))),
        "short": replace(base, max_length=chance.choice((1, 3))),
    }


class Requests:
    """Draws jobs of every kind. `quiet` jobs start at once and block no other job."""

    def __init__(self, chance: random.Random, *, quiet: bool = False) -> None:
        self._chance, self._quiet = chance, quiet
        self._serial = 0

    def draw(self) -> tuple[str, NewJob]:
        chance = self._chance
        self._serial += 1
        script = self._script()
        often = (100, 0, 6, 0, 0) if self._quiet else (100, 6, 6, 13, 7)
        task = chance.choices(("work", "rare", "isolated", "metered", "fetched"), often)[0]
        queue = "plain" if self._quiet else chance.choices(QUEUES, (45, 25, 15, 15))[0]
        request = NewJob(
            id=f"j{self._serial:03d}",
            task=task,
            payload=msgspec.json.encode({"script": script}),
            priority=chance.choice((1, 5, 5, 5, 9)),
            key=chance.choice(("a", "b", "c")) if queue == "keyed" else None,
            delay=chance.choice((0, 0, 0, 0, 0.5, 5.0, 15.0)),
            expires=None if self._quiet or chance.random() > 0.07 else chance.choice((0.5, 3.0, 20.0)),
            timeout=2.0 if script.kind == "stuck" else None,
            unique=self._unique(task),
            needs=(need_of(task, script.serial),) if task in USES else (),
        )
        return queue, request

    def _script(self) -> Script:
        chance = self._chance
        kind = "quick" if self._quiet else chance.choices(_KINDS, _WEIGHTS)[0]
        seconds = chance.uniform(4, 20) if kind == "long" else chance.uniform(0, 0.3)
        return Script(kind, seconds, chance.choice((1, 1, 2, 4)), self._serial)

    def _unique(self, task: str) -> Unique | None:
        """Draws a unique key. Jobs with pools merge only within one task; otherwise they would call without
        a reservation."""
        chance = self._chance
        if self._quiet or chance.random() > 0.3:
            return None
        lasts = chance.choice((None, None, None, "period", "at_most"))
        seconds = chance.choice((2.0, 10.0))
        return Unique(
            chance.choice(("x", "y")) + (f" {task}" if task in USES else ""),
            chance.choice(_CONFLICTS),
            period=seconds if lasts == "period" else None,
            at_most=seconds if lasts == "at_most" else None,
        )


class Producer:
    """Sends jobs through the real client, and repeats a request with the same id if it gets no answer."""

    def __init__(
        self, store: Network, outcome_log: OutcomeLog, trace: Trace, name: str, chance: random.Random
    ) -> None:
        self._store, self._outcome_log, self._trace = store, outcome_log, trace
        self._name, self._chance = name, chance

    async def run(self, draw: Callable[[], tuple[str, NewJob]], jobs: int, seconds: float) -> None:
        enqueuer = JobEnqueuer(self._store, asyncio.get_running_loop())
        sends: list[asyncio.Task[None]] = []
        for _ in range(jobs):
            await asyncio.sleep(self._chance.expovariate(jobs / seconds))
            together = self._chance.choice((1, 1, 1, 3))
            sends += [asyncio.create_task(self._send(enqueuer, *draw())) for _ in range(together)]
        await asyncio.gather(*sends)

    async def _send(self, enqueuer: JobEnqueuer, queue: str, request: NewJob) -> None:
        self._outcome_log.send(queue, request)
        for _ in range(4):
            began = self._outcome_log.now()
            try:
                [[answer]] = await enqueuer.insert([JobGroup(queue, (request,))])
            except StoreUnavailable:
                self._outcome_log.enqueued(self._name, request.id, began)
                continue
            self._outcome_log.enqueued(self._name, request.id, began)
            self._trace.add(self._name, f"sent {request.id} to {queue}: {answer.verdict} {answer.id}")
            if answer.verdict is InsertVerdict.ACCEPTED:
                self._outcome_log.accept(answer.id)
            return


class ExternalProducer:
    """Writes arrivals like a commit in another program's database: once it returned, the request is
    accepted (J20)."""

    def __init__(
        self, store: MemoryStore, outcome_log: OutcomeLog, trace: Trace, chance: random.Random
    ) -> None:
        self._store, self._outcome_log, self._trace, self._chance = store, outcome_log, trace, chance

    async def run(self) -> None:
        for serial in range(1, 9):
            await asyncio.sleep(self._chance.expovariate(0.3))
            script = Script("quick", self._chance.uniform(0, 0.3), 1, serial)
            task = self._chance.choice(("work", "work", "rare"))
            request = NewJob(id=f"f{serial:02d}", task=task, payload=msgspec.json.encode({"script": script}))
            self._outcome_log.send("plain", request)
            self._store.arrive(request.id, request.task, request.payload, b'{"queue": "plain"}')
            self._outcome_log.accept(request.id)
            self._trace.add("foreigner", f"wrote {request.id}")
