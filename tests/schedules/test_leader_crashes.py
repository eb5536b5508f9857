"""Leaders that die between any two awaits, lost replies, changed clocks: one job per tick (I12)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tidemill import Tidemill
from tidemill.contract.coordination import Leadership
from tidemill.core.documents import Advance, AdvanceResult, DocumentJob
from tidemill.errors import StoreUnavailable
from tidemill.schedules.due_ticks import make_tick_job_id
from tidemill.stores.memory import MemoryStore
from tidemill.testing import START_TIME, SeededEntropy, VirtualClock, VirtualLoop, VirtualProcess, run_virtual

SLOW = ("worklist", "documents", "find_documents", "read_clock", "get")


class FlakyStore(MemoryStore):
    """A store behind a bad connection: calls are slow, replies get lost, and any worker may believe that it
    leads.

    `made` are the jobs of every advance that was taken, over all connections."""

    def __init__(self, store: MemoryStore, chance: random.Random, made: list[DocumentJob]) -> None:
        self.__dict__.update(store.new_handle().__dict__)
        self._chance, self._made = chance, made
        for verb in SLOW:
            setattr(self, verb, self._slowly(getattr(self, verb)))

    async def advance(self, advances: Sequence[Advance]) -> list[AdvanceResult]:
        await self._travel()
        answers = await super().advance(advances)
        for item, answer in zip(advances, answers, strict=True):
            self._made.extend(item.jobs if answer.done else ())
        await self._travel()
        if self._chance.random() < 0.1:
            raise StoreUnavailable("the reply was lost")
        return answers

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Leadership:
        await self._travel()
        led = await super().lead(duties, worker, lease)
        return replace(led, leads=tuple(duties)) if self._chance.random() < 0.5 else led

    def _slowly(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            await self._travel()
            return await verb(*args, **options)

        return call

    async def _travel(self) -> None:
        await asyncio.sleep(self._chance.expovariate(10))


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock, entropy=SeededEntropy(seed))
        self.made: list[DocumentJob] = []
        self.living: list[VirtualProcess] = []
        self._started = 0

    def program(self) -> Tidemill:
        """Returns an application; every worker is a program. Two of its schedules name the same instants."""
        line = FlakyStore(self.store, random.Random(self.chance.random()), self.made)
        entropy = SeededEntropy(self.chance.getrandbits(32))
        app = Tidemill(store=line, clock=self.clock, entropy=entropy)

        @app.task(name="note")
        async def note() -> None: ...

        for number in (7, 10, 10.5):
            app.schedule(
                f"every {number:g}", note, every=number, catch_up="all", overlap="allow", start=START_TIME
            )
        app.schedule("minutes", note, cron="* * * * *", catch_up="all", overlap="allow")
        app.schedule("skips", note, every=5, start=START_TIME)
        return app

    def start(self) -> None:
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        self._started += 1
        process, _ = loop.spawn(f"worker {self._started}", self._work())
        self.living.append(process)

    async def _work(self) -> None:
        app = self.program()
        await app.client.store()
        await app.worker(heartbeat_thread=False, isolation=False, lease=5, reclaim_every=1).run()

    def kill(self) -> None:
        self.living.pop(self.chance.randrange(len(self.living))).kill()
        self.start()

    def doubled(self) -> dict[str, int]:
        """Returns ids that were created twice: one job while the id is remembered, and two afterwards."""
        return {
            name: count for name, count in Counter(made.job.id for made in self.made).items() if count > 1
        }

    def ticks(self, schedule: str) -> list[str]:
        return [made.job.id for made in self.made if made.job.id.startswith(f"{schedule}@")]


async def storm(history: History, seconds: float, step: Callable[[], None]) -> None:
    await history.store.open()
    for _ in range(3):
        history.start()
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(history.chance.expovariate(0.3))
        step()
    await asyncio.sleep(30)


@pytest.mark.parametrize("seed", range(8))
def test_i12_two_leaders_under_kills_fire_every_tick_once(seed: int) -> None:
    async def main() -> None:
        history = History(seed)
        await storm(history, 100, history.kill)
        assert history.doubled() == {}
        now = history.clock.wall()
        for every in (7, 10):
            name = f"every {every}"
            first = START_TIME + every  # made a moment after START, at which it would tick too
            expected = [
                make_tick_job_id(name, first + every * count) for count in range(int((now - first) // every))
            ]
            assert [tick for tick in history.ticks(name) if tick != make_tick_job_id(name, START_TIME)][
                : len(expected)
            ] == expected
        assert len(history.ticks("minutes")) >= 2
        assert history.ticks("skips")

    run_virtual(main(), seed=seed)


@pytest.mark.parametrize("seed", range(8))
def test_i12_no_tick_fires_twice_when_the_clock_is_set(seed: int) -> None:
    async def main() -> None:
        history = History(seed)

        def step() -> None:
            if history.chance.random() < 0.3:
                history.clock.step_wall(history.chance.choice((-3600, -60, -1, 1, 60, 3600)))
            else:
                history.kill()

        await storm(history, 100, step)
        assert history.doubled() == {}
        for name in ("every 7", "every 10", "minutes", "skips"):
            ticks = history.ticks(name)
            assert ticks == sorted(ticks), "ticks only go forward"

    run_virtual(main(), seed=seed)


def test_the_faults_of_this_module_do_occur() -> None:
    """Some advances come too late, two leaders decide some ticks, and some leaders die during one."""

    async def main() -> None:
        history = History(1)
        refused = 0
        plain = MemoryStore.advance

        async def counted(self: MemoryStore, advances: Sequence[Advance]) -> list[AdvanceResult]:
            nonlocal refused
            answers = await plain(self, advances)
            refused += sum(not answer.done for answer in answers)
            return answers

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryStore, "advance", counted)
            await storm(history, 100, history.kill)
        assert refused > 3

    run_virtual(main(), seed=1)
