"""Producers: what they send, and how they insist on sending it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from tests.simulation.handlers import USES, Kind, Script
from tests.simulation.ledger import Ledger
from tests.simulation.network import Network
from tests.simulation.provider import need_of
from tests.simulation.trace import Trace
from tidemill.client.enqueuer import Enqueuer
from tidemill.core.job import Group, NewJob
from tidemill.core.queues import QueueSettings, Retention, Verdict
from tidemill.core.uniqueness import OnConflict, Unique
from tidemill.errors import StoreUnavailable

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
    """Draws jobs of every sort. `quiet` ones start at once and hinder nobody."""

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
        """What is merged into a job with pools is of the same task, or it would call without having asked."""
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
    """Sends through the real enqueuer, and again with the same id when it hears nothing."""

    def __init__(
        self, store: Network, ledger: Ledger, trace: Trace, name: str, chance: random.Random
    ) -> None:
        self._store, self._ledger, self._trace = store, ledger, trace
        self._name, self._chance = name, chance

    async def run(self, draw: Callable[[], tuple[str, NewJob]], jobs: int, seconds: float) -> None:
        enqueuer = Enqueuer(self._store, asyncio.get_running_loop())
        sends: list[asyncio.Task[None]] = []
        for _ in range(jobs):
            await asyncio.sleep(self._chance.expovariate(jobs / seconds))
            together = self._chance.choice((1, 1, 1, 3))
            sends += [asyncio.create_task(self._send(enqueuer, *draw())) for _ in range(together)]
        await asyncio.gather(*sends)

    async def _send(self, enqueuer: Enqueuer, queue: str, request: NewJob) -> None:
        self._ledger.send(queue, request)
        for _ in range(4):
            began = self._ledger.now()
            try:
                [[answer]] = await enqueuer.insert([Group(queue, (request,))])
            except StoreUnavailable:
                self._ledger.enqueued(self._name, request.id, began)
                continue
            self._ledger.enqueued(self._name, request.id, began)
            self._trace.add(self._name, f"sent {request.id} to {queue}: {answer.verdict} {answer.id}")
            if answer.verdict is Verdict.ACCEPTED:
                self._ledger.accept(answer.id)
            return
