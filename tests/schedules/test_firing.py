"""Schedules of an application, fired by its workers in virtual time (I12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from tidemill import State, Tidemill
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.schedules.schedule import Outcome, ScheduleState
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import Event, ScheduleFired, ScheduleSkipped
from tidemill.testing import START, SeededEntropy, VirtualClock, run_virtual
from tidemill.worker import Worker

TURN = 600.0


class Mill:
    """An application in virtual time, its workers started and stopped by hand. It begins at midnight UTC."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock, entropy=SeededEntropy(2))
        self.events: list[Event] = []
        self.app = self.program()
        self.ran: list[str] = []
        self.takes = 0.0
        self._running: list[tuple[Worker, asyncio.Task[None]]] = []

        @self.app.task(name="note")
        async def note(text: str = "") -> None:
            self.ran.append(text)
            await asyncio.sleep(self.takes)

        self.note = note

    def program(self) -> Tidemill:
        """Another one on the same store."""
        app = Tidemill(store=self.store.another(), clock=self.clock, entropy=SeededEntropy(3))
        app.on()(self.events.append)
        return app

    async def start(self, app: Tidemill | None = None) -> asyncio.Task[None]:
        application = app or self.app
        await application.client.store()
        worker = application.worker(heartbeat_thread=False, isolation=False)
        task = asyncio.create_task(worker.run())
        self._running.append((worker, task))
        await worker.started.wait()
        return task

    async def stop(self) -> None:
        for worker, task in self._running:
            worker.stop()
            if not task.cancelled():
                await task
        self._running.clear()

    async def jobs(self) -> list[Job]:
        page = await self.store.find(Filter(states=tuple(State)), 1000, None)
        return sorted(page.jobs, key=lambda job: job.seq)

    async def ids(self) -> list[str]:
        return [job.id for job in await self.jobs()]

    def told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


Scenario = Callable[[Mill], Coroutine[Any, Any, None]]


def virtually(scenario: Scenario, seed: int = 0) -> None:
    async def main() -> None:
        mill = Mill()
        await mill.store.open()
        await scenario(mill)
        await mill.stop()

    run_virtual(main(), seed=seed)


def test_i12_one_job_per_tick_and_on_time() -> None:
    async def scenario(mill: Mill) -> None:
        mill.app.schedule("often", mill.note.job("x"), cron="*/10 8 * * *", tz="Asia/Shanghai")
        for _ in range(3):
            await mill.start()
        await asyncio.sleep(3.5 * TURN)
        assert await mill.ids() == [f"often@2030-01-01T00:{minute}:00Z" for minute in (10, 20, 30)]
        assert mill.ran == ["x"] * 3
        assert max(event.seconds for event in mill.told(ScheduleFired)) < 0.1
        view = await mill.app.schedules.get("often")
        assert [past.outcome for past in view.history] == [Outcome.FIRED] * 3
        assert view.next[0] == datetime(2030, 1, 1, 0, 40, tzinfo=UTC).timestamp()

    virtually(scenario)


def test_an_interval_goes_by_when_it_was_made_and_does_not_drift() -> None:
    async def scenario(mill: Mill) -> None:
        await mill.start()
        await asyncio.sleep(10.5)
        await mill.app.schedules.upsert("feed-7", mill.note.job("7"), every=60)
        await asyncio.sleep(605)
        fired = mill.told(ScheduleFired)
        assert [event.tick for event in fired] == [START + 10.5 + 60 * count for count in range(1, 11)]
        assert max(event.seconds for event in fired) < 0.1

    virtually(scenario)


def test_overlap_skips_while_the_last_job_is_live_and_says_so() -> None:
    async def scenario(mill: Mill) -> None:
        mill.takes = 150
        mill.app.schedule("slow", mill.note, every=60)
        mill.app.schedule("slow too", mill.note, every=60, overlap="allow")
        await mill.start()
        await asyncio.sleep(245)
        view = await mill.app.schedules.get("slow")
        assert [past.outcome for past in view.history] == [
            Outcome.FIRED,
            Outcome.OVERLAP,
            Outcome.OVERLAP,
            Outcome.FIRED,
        ]
        assert {past.job for past in view.history[:3]} == {view.history[0].job}
        assert [event.reason for event in mill.told(ScheduleSkipped)] == ["overlap", "overlap"]
        assert len((await mill.app.schedules.get("slow too")).history) == 4
        assert len(await mill.jobs()) == 6

    virtually(scenario)


@pytest.mark.parametrize(
    ("catch_up", "fired", "missed"), [("skip", [], 5), ("once", [5], 4), ("all", [1, 2, 3, 4, 5], 0)]
)
def test_i12_catch_up_as_declared(catch_up: Any, fired: list[int], missed: int) -> None:
    """Nobody is there for five turns and a half."""

    async def scenario(mill: Mill) -> None:
        mill.app.schedule("often", mill.note, cron="*/10 * * * *", catch_up=catch_up, overlap="allow")
        await mill.start()
        await asyncio.sleep(1)
        await mill.stop()
        await asyncio.sleep(5.5 * TURN)
        await mill.start()
        await asyncio.sleep(1)
        assert await mill.ids() == [f"often@2030-01-01T00:{turn}0:00Z" for turn in fired]
        skipped = mill.told(ScheduleSkipped)
        assert [(event.reason, event.count) for event in skipped] == [("missed", missed)] * bool(missed)
        await asyncio.sleep(0.5 * TURN)
        assert (await mill.ids())[-1] == "often@2030-01-01T01:00:00Z"

    virtually(scenario)


def test_catching_up_is_bounded() -> None:
    async def scenario(mill: Mill) -> None:
        mill.app.schedule("often", mill.note, every=10, catch_up="all", overlap="allow")
        await mill.start()
        await asyncio.sleep(1)
        await mill.stop()
        await asyncio.sleep(30 * 24 * 3600)
        await mill.start()
        await asyncio.sleep(1)
        assert len(await mill.jobs()) == 100

    virtually(scenario)


def test_a_pause_skips_its_ticks_and_ends_by_itself() -> None:
    async def scenario(mill: Mill) -> None:
        mill.app.schedule("often", mill.note, cron="*/10 * * * *", catch_up="all")
        await mill.start()
        await asyncio.sleep(1)
        view = await mill.app.schedules.pause("often", until=START + 2.5 * TURN, reason="moving")
        assert (view.state, view.next[0]) == (ScheduleState.PAUSED, START + 3 * TURN)
        await asyncio.sleep(3.5 * TURN)
        assert await mill.ids() == ["often@2030-01-01T00:30:00Z"]
        await mill.app.schedules.pause("often")
        await asyncio.sleep(2 * TURN)
        view = await mill.app.schedules.resume("often")
        assert view.state is ScheduleState.ACTIVE
        await asyncio.sleep(TURN)
        assert (await mill.ids())[1:] == ["often@2030-01-01T01:00:00Z"]

    virtually(scenario)


def test_an_override_holds_through_a_deploy_and_ends_by_itself() -> None:
    async def scenario(mill: Mill) -> None:
        mill.app.schedule("often", mill.note, cron="*/10 * * * *")
        await mill.start()
        await asyncio.sleep(1)
        until = START + 2.75 * TURN
        view = await mill.app.schedules.override("often", by="ann", cron="5-55/10 * * * *", until=until)
        assert (view.settings.cron, view.declared.cron) == ("5-55/10 * * * *", "*/10 * * * *")
        await mill.stop()
        await mill.start()
        await asyncio.sleep(4.25 * TURN)
        times = [job.removeprefix("often@2030-01-01T")[:5] for job in await mill.ids()]
        assert times == ["00:05", "00:15", "00:25", "00:30", "00:40"]
        assert (await mill.app.schedules.get("often")).override is None

    virtually(scenario)


def test_ticks_of_an_override_that_ended_while_nobody_looked_are_caught_up() -> None:
    async def scenario(mill: Mill) -> None:
        mill.app.schedule("often", mill.note, cron="0 * * * *", catch_up="all", overlap="allow")
        await mill.start()
        await asyncio.sleep(1)
        await mill.app.schedules.override("often", by="ann", every=TURN, until=START + 2.5 * TURN)
        await mill.stop()
        await asyncio.sleep(6.5 * TURN)
        await mill.start()
        await asyncio.sleep(1)
        view = await mill.app.schedules.get("often")
        assert [round(past.tick - START, -2) for past in view.history] == [TURN, 2 * TURN, 6 * TURN]
        assert view.override is None

    virtually(scenario)


def test_jitter_starts_jobs_later_never_earlier() -> None:
    async def scenario(mill: Mill) -> None:
        mill.app.schedule("spread", mill.note, cron="*/10 * * * *", jitter=120, overlap="allow")
        await mill.start()
        await asyncio.sleep(5.5 * TURN)
        jobs = await mill.jobs()
        late = [job.due - START - 600 * (index + 1) for index, job in enumerate(jobs)]
        assert len(jobs) == 5
        assert 0 <= min(late) < max(late) <= 120
        assert len(set(late)) == len(late)

    virtually(scenario)


def test_gone_from_the_code_it_is_disabled_and_back_it_goes_on() -> None:
    async def scenario(mill: Mill) -> None:
        mill.app.schedule("often", mill.note, cron="*/10 * * * *")
        await mill.start()
        await asyncio.sleep(1.5 * TURN)
        await mill.stop()
        newer = mill.program()
        newer.task(name="note")(mill.note.definition.handler)
        await mill.start(newer)
        await asyncio.sleep(TURN)
        view = await newer.schedules.get("often")
        assert (view.state, len(view.history)) == (ScheduleState.DISABLED, 1)
        await mill.stop()
        await mill.start()
        await asyncio.sleep(TURN)
        assert (await mill.app.schedules.get("often")).state is ScheduleState.ACTIVE
        assert await mill.ids() == ["often@2030-01-01T00:10:00Z", "often@2030-01-01T00:30:00Z"]

    virtually(scenario)


def test_another_program_on_the_store_keeps_its_schedules_and_fires_its_own() -> None:
    """Neither knows the other's task; whichever leads first hides nothing from the other."""

    async def scenario(mill: Mill) -> None:
        mill.app.schedule("ours", mill.note, cron="*/10 * * * *")
        other = mill.program()

        @other.task(name="other")
        async def theirs() -> None: ...

        other.schedule("theirs", theirs, cron="*/10 * * * *")
        await mill.start()
        await mill.start(other)
        await mill.start()
        await asyncio.sleep(1.5 * TURN)
        assert sorted(await mill.ids()) == ["ours@2030-01-01T00:10:00Z", "theirs@2030-01-01T00:10:00Z"]
        assert max(event.seconds for event in mill.told(ScheduleFired)) < 0.1

    virtually(scenario)


def test_a_leader_that_comes_upon_much_it_cannot_fire_sees_to_its_own_at_once() -> None:
    """More of it than one round looks at, all due before ours."""

    async def scenario(mill: Mill) -> None:
        other = mill.program()

        @other.task(name="other")
        async def theirs() -> None: ...

        rows: list[Any] = [(f"feed-{number}", theirs.job(), {"every": 60}) for number in range(1100)]
        await other.schedules.upsert_many(rows)
        await mill.app.schedules.upsert("ours", mill.note.job("x"), every=TURN)
        await asyncio.sleep(TURN + 1)
        await mill.start()
        await asyncio.sleep(1)
        assert mill.ran == ["x"]

    virtually(scenario)


def test_arguments_that_no_longer_fit_end_as_a_failed_job() -> None:
    async def scenario(mill: Mill) -> None:
        await mill.app.schedules.upsert("feed", mill.note.job("x"), every=60)
        newer = mill.program()

        @newer.task(name="note")
        async def note(number: int) -> None: ...

        await mill.start(newer)
        await asyncio.sleep(80)
        assert await mill.jobs() == [], "another version may know them"
        await asyncio.sleep(20)
        [job] = await mill.jobs()
        assert job.state is State.FAILED
        assert job.error is not None
        assert "number" in job.error.message or "text" in job.error.message
        assert [past.outcome for past in (await mill.app.schedules.get("feed")).history] == [Outcome.FAILED]

    virtually(scenario)


def test_i27_a_leader_of_the_older_version_leaves_what_only_the_newer_can_make() -> None:
    async def scenario(mill: Mill) -> None:
        newer = mill.program()

        @newer.task(name="note")
        async def note(text: str, number: int) -> None:
            mill.ran.append(f"{text} {number}")

        newer.schedule("both", note.job("x", 7), every=60)
        await mill.start()
        await mill.start(newer)
        await asyncio.sleep(130)
        assert [job.id[:5] for job in await mill.jobs()] == ["both@", "both@"]
        view = await newer.schedules.get("both")
        assert [past.outcome for past in view.history] == [Outcome.FIRED] * 2
        assert max(event.seconds for event in mill.told(ScheduleFired)) < 0.1

    virtually(scenario)


def test_run_now_makes_a_job_and_leaves_the_ticks_alone() -> None:
    async def scenario(mill: Mill) -> None:
        mill.takes = 100
        await mill.app.schedules.upsert("feed", mill.note.job("x"), every=TURN)
        job = await mill.app.schedules.run_now("feed")
        again = await mill.app.schedules.run_now("feed")
        assert (again.id, again.existing) == (job.id, True)
        await mill.start()
        await asyncio.sleep(1.5 * TURN)
        assert await mill.ids() == [job.id, "feed@2030-01-01T00:10:00Z"]
        view = await mill.app.schedules.get("feed")
        assert [past.outcome for past in view.history] == [Outcome.RUN, Outcome.FIRED]

    virtually(scenario)


def test_removed_it_is_silent_and_its_name_is_free() -> None:
    async def scenario(mill: Mill) -> None:
        await mill.start()
        await mill.app.schedules.upsert("feed", mill.note.job("x"), every=60)
        await asyncio.sleep(90)
        assert await mill.app.schedules.remove("feed", "nothing") == 1
        await asyncio.sleep(600)
        assert len(await mill.jobs()) == 1
        for pause in (1, 4000):  # kept for an hour, then gone
            await mill.app.schedules.upsert("feed", mill.note.job("y"), every=60)
            await asyncio.sleep(90)
            await mill.app.schedules.remove("feed")
            await asyncio.sleep(pause)
        assert mill.ran == ["x", "y", "y"]

    virtually(scenario)


def test_start_and_end() -> None:
    async def scenario(mill: Mill) -> None:
        await mill.start()
        await mill.app.schedules.upsert(
            "sale", mill.note.job("x"), every=100, start=START + TURN, end=START + 1.5 * TURN
        )
        await asyncio.sleep(2 * TURN)
        assert [event.tick - START for event in mill.told(ScheduleFired)] == [600, 700, 800, 900]
        assert (await mill.app.schedules.get("sale")).state is ScheduleState.ENDED

    virtually(scenario)


def test_however_much_is_caught_up_no_step_is_a_long_one() -> None:
    async def scenario(mill: Mill) -> None:
        rows: list[Any] = [
            (f"feed-{number}", mill.note.job("x"), {"every": 10, "catch_up": "all", "overlap": "allow"})
            for number in range(7)
        ]
        await mill.app.schedules.upsert_many(rows)
        await asyncio.sleep(700)
        steps: list[int] = []
        plain = MemoryStore.advance

        async def measured(self: MemoryStore, advances: Any) -> Any:
            steps.append(sum(len(item.jobs) for item in advances))
            return await plain(self, advances)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryStore, "advance", measured)
            await mill.start()
            await asyncio.sleep(5)
        assert sum(steps) == len(await mill.jobs()) == 7 * 70
        assert max(steps) <= 100

    virtually(scenario)
