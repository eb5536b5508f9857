"""Schedules of an application, fired by its workers in virtual time (I12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from tidemill import State, Tidemill, Unique
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.schedules.schedule import ScheduleState, TickOutcome
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import Event, ScheduleFired, ScheduleSkipped
from tidemill.testing import START_TIME, SeededEntropy, VirtualClock, run_virtual
from tidemill.worker import Worker

TURN = 600.0


class VirtualProgram:
    """An application in virtual time, whose workers the test starts and stops. It begins at midnight UTC."""

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
        """Returns another application on the same store."""
        app = Tidemill(store=self.store.new_handle(), clock=self.clock, entropy=SeededEntropy(3))
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

    def events_of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


Scenario = Callable[[VirtualProgram], Coroutine[Any, Any, None]]


def virtually(scenario: Scenario, seed: int = 0) -> None:
    async def main() -> None:
        program_run = VirtualProgram()
        await program_run.store.open()
        await scenario(program_run)
        await program_run.stop()

    run_virtual(main(), seed=seed)


def test_i12_one_job_per_tick_and_on_time() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.app.schedule("often", program_run.note.job("x"), cron="*/10 8 * * *", tz="Asia/Shanghai")
        for _ in range(3):
            await program_run.start()
        await asyncio.sleep(3.5 * TURN)
        assert await program_run.ids() == [f"often@2030-01-01T00:{minute}:00Z" for minute in (10, 20, 30)]
        assert program_run.ran == ["x"] * 3
        assert max(event.seconds for event in program_run.events_of(ScheduleFired)) < 0.1
        view = await program_run.app.schedules.get("often")
        assert [past.outcome for past in view.history] == [TickOutcome.FIRED] * 3
        assert view.next[0] == datetime(2030, 1, 1, 0, 40, tzinfo=UTC).timestamp()

    virtually(scenario)


def test_an_interval_counts_from_its_creation_and_does_not_drift() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        await program_run.start()
        await asyncio.sleep(10.5)
        await program_run.app.schedules.upsert("feed-7", program_run.note.job("7"), every=60)
        await asyncio.sleep(605)
        fired = program_run.events_of(ScheduleFired)
        assert [event.tick for event in fired] == [START_TIME + 10.5 + 60 * count for count in range(1, 11)]
        assert max(event.seconds for event in fired) < 0.1

    virtually(scenario)


def test_overlap_skips_while_the_last_job_is_live_and_says_so() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.takes = 150
        program_run.app.schedule("slow", program_run.note, every=60)
        program_run.app.schedule("slow too", program_run.note, every=60, overlap="allow")
        await program_run.start()
        await asyncio.sleep(245)
        view = await program_run.app.schedules.get("slow")
        assert [past.outcome for past in view.history] == [
            TickOutcome.FIRED,
            TickOutcome.OVERLAP,
            TickOutcome.OVERLAP,
            TickOutcome.FIRED,
        ]
        assert {past.job for past in view.history[:3]} == {view.history[0].job}
        assert [event.reason for event in program_run.events_of(ScheduleSkipped)] == ["overlap", "overlap"]
        assert len((await program_run.app.schedules.get("slow too")).history) == 4
        assert len(await program_run.jobs()) == 6

    virtually(scenario)


def test_a_tick_whose_unique_key_is_held_is_recorded_as_overlap() -> None:
    """The key is held by a job that no schedule created, which the pass does not look for."""

    async def scenario(program_run: VirtualProgram) -> None:
        @program_run.app.task(name="alone", unique=Unique("alone"))
        async def alone() -> None:
            await asyncio.sleep(70)

        program_run.app.schedule("often", alone, every=60, overlap="allow")
        await program_run.start()
        await asyncio.sleep(30)
        by_hand = await alone.enqueue()
        await asyncio.sleep(100)
        view = await program_run.app.schedules.get("often")
        assert [(past.outcome, past.job) for past in view.history] == [
            (TickOutcome.OVERLAP, by_hand.id),
            (TickOutcome.FIRED, view.last_job),
        ]
        assert [event.reason for event in program_run.events_of(ScheduleSkipped)] == ["overlap"]
        assert len(program_run.events_of(ScheduleFired)) == 1

    virtually(scenario)


@pytest.mark.parametrize(
    ("catch_up", "fired", "missed"), [("skip", [], 5), ("once", [5], 4), ("all", [1, 2, 3, 4, 5], 0)]
)
def test_i12_catch_up_as_declared(catch_up: Any, fired: list[int], missed: int) -> None:
    """No worker runs for five and a half ticks."""

    async def scenario(program_run: VirtualProgram) -> None:
        program_run.app.schedule(
            "often", program_run.note, cron="*/10 * * * *", catch_up=catch_up, overlap="allow"
        )
        await program_run.start()
        await asyncio.sleep(1)
        await program_run.stop()
        await asyncio.sleep(5.5 * TURN)
        await program_run.start()
        await asyncio.sleep(1)
        assert await program_run.ids() == [f"often@2030-01-01T00:{turn}0:00Z" for turn in fired]
        skipped = program_run.events_of(ScheduleSkipped)
        assert [(event.reason, event.count) for event in skipped] == [("missed", missed)] * bool(missed)
        await asyncio.sleep(0.5 * TURN)
        assert (await program_run.ids())[-1] == "often@2030-01-01T01:00:00Z"

    virtually(scenario)


def test_catch_up_is_bounded() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.app.schedule("often", program_run.note, every=10, catch_up="all", overlap="allow")
        await program_run.start()
        await asyncio.sleep(1)
        await program_run.stop()
        await asyncio.sleep(30 * 24 * 3600)
        await program_run.start()
        await asyncio.sleep(1)
        assert len(await program_run.jobs()) == 100

    virtually(scenario)


def test_a_pause_skips_its_ticks_and_ends_by_itself() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.app.schedule("often", program_run.note, cron="*/10 * * * *", catch_up="all")
        await program_run.start()
        await asyncio.sleep(1)
        view = await program_run.app.schedules.pause("often", until=START_TIME + 2.5 * TURN, reason="moving")
        assert (view.state, view.next[0]) == (ScheduleState.PAUSED, START_TIME + 3 * TURN)
        await asyncio.sleep(3.5 * TURN)
        assert await program_run.ids() == ["often@2030-01-01T00:30:00Z"]
        await program_run.app.schedules.pause("often")
        await asyncio.sleep(2 * TURN)
        view = await program_run.app.schedules.resume("often")
        assert view.state is ScheduleState.ACTIVE
        await asyncio.sleep(TURN)
        assert (await program_run.ids())[1:] == ["often@2030-01-01T01:00:00Z"]

    virtually(scenario)


def test_an_override_holds_through_a_deploy_and_ends_by_itself() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.app.schedule("often", program_run.note, cron="*/10 * * * *")
        await program_run.start()
        await asyncio.sleep(1)
        until = START_TIME + 2.75 * TURN
        view = await program_run.app.schedules.override(
            "often", by="ann", cron="5-55/10 * * * *", until=until
        )
        assert (view.settings.cron, view.declared.cron) == ("5-55/10 * * * *", "*/10 * * * *")
        await program_run.stop()
        await program_run.start()
        await asyncio.sleep(4.25 * TURN)
        times = [job.removeprefix("often@2030-01-01T")[:5] for job in await program_run.ids()]
        assert times == ["00:05", "00:15", "00:25", "00:30", "00:40"]
        assert (await program_run.app.schedules.get("often")).override is None

    virtually(scenario)


def test_ticks_of_an_override_that_ended_during_an_outage_are_caught_up() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.app.schedule("often", program_run.note, cron="0 * * * *", catch_up="all", overlap="allow")
        await program_run.start()
        await asyncio.sleep(1)
        await program_run.app.schedules.override("often", by="ann", every=TURN, until=START_TIME + 2.5 * TURN)
        await program_run.stop()
        await asyncio.sleep(6.5 * TURN)
        await program_run.start()
        await asyncio.sleep(1)
        view = await program_run.app.schedules.get("often")
        assert [round(past.tick - START_TIME, -2) for past in view.history] == [TURN, 2 * TURN, 6 * TURN]
        assert view.override is None

    virtually(scenario)


def test_jitter_starts_jobs_later_never_earlier() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.app.schedule("spread", program_run.note, cron="*/10 * * * *", jitter=120, overlap="allow")
        await program_run.start()
        await asyncio.sleep(5.5 * TURN)
        jobs = await program_run.jobs()
        late = [job.due - START_TIME - 600 * (index + 1) for index, job in enumerate(jobs)]
        assert len(jobs) == 5
        assert 0 <= min(late) < max(late) <= 120
        assert len(set(late)) == len(late)

    virtually(scenario)


def test_a_schedule_removed_from_code_is_disabled_until_it_returns() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.app.schedule("often", program_run.note, cron="*/10 * * * *")
        await program_run.start()
        await asyncio.sleep(1.5 * TURN)
        await program_run.stop()
        newer = program_run.program()
        newer.task(name="note")(program_run.note.definition.handler)
        await program_run.start(newer)
        await asyncio.sleep(TURN)
        view = await newer.schedules.get("often")
        assert (view.state, len(view.history)) == (ScheduleState.DISABLED, 1)
        await program_run.stop()
        await program_run.start()
        await asyncio.sleep(TURN)
        assert (await program_run.app.schedules.get("often")).state is ScheduleState.ACTIVE
        assert await program_run.ids() == ["often@2030-01-01T00:10:00Z", "often@2030-01-01T00:30:00Z"]

    virtually(scenario)


def test_another_program_on_the_store_keeps_its_schedules_and_fires_its_own() -> None:
    """Neither knows the other's task; the one that leads first hides nothing from the other."""

    async def scenario(program_run: VirtualProgram) -> None:
        program_run.app.schedule("ours", program_run.note, cron="*/10 * * * *")
        other = program_run.program()

        @other.task(name="other")
        async def theirs() -> None: ...

        other.schedule("theirs", theirs, cron="*/10 * * * *")
        await program_run.start()
        await program_run.start(other)
        await program_run.start()
        await asyncio.sleep(1.5 * TURN)
        assert sorted(await program_run.ids()) == ["ours@2030-01-01T00:10:00Z", "theirs@2030-01-01T00:10:00Z"]
        assert max(event.seconds for event in program_run.events_of(ScheduleFired)) < 0.1

    virtually(scenario)


def test_a_leader_fires_its_own_schedules_behind_many_it_cannot_fire() -> None:
    """More foreign schedules than one pass reads, all due before ours."""

    async def scenario(program_run: VirtualProgram) -> None:
        other = program_run.program()

        @other.task(name="other")
        async def theirs() -> None: ...

        rows: list[Any] = [(f"feed-{number}", theirs.job(), {"every": 60}) for number in range(1100)]
        await other.schedules.upsert_many(rows)
        await program_run.app.schedules.upsert("ours", program_run.note.job("x"), every=TURN)
        await asyncio.sleep(TURN + 1)
        await program_run.start()
        await asyncio.sleep(1)
        assert program_run.ran == ["x"]

    virtually(scenario)


def test_invalid_arguments_end_as_a_failed_job() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        await program_run.app.schedules.upsert("feed", program_run.note.job("x"), every=60)
        newer = program_run.program()

        @newer.task(name="note")
        async def note(number: int) -> None: ...

        await program_run.start(newer)
        await asyncio.sleep(80)
        assert await program_run.jobs() == [], "another version may know them"
        await asyncio.sleep(20)
        [job] = await program_run.jobs()
        assert job.state is State.FAILED
        assert job.error is not None
        assert "number" in job.error.message or "text" in job.error.message
        assert [past.outcome for past in (await program_run.app.schedules.get("feed")).history] == [
            TickOutcome.FAILED
        ]

    virtually(scenario)


def test_i27_an_older_leader_leaves_jobs_that_only_a_newer_version_can_build() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        newer = program_run.program()

        @newer.task(name="note")
        async def note(text: str, number: int) -> None:
            program_run.ran.append(f"{text} {number}")

        newer.schedule("both", note.job("x", 7), every=60)
        await program_run.start()
        await program_run.start(newer)
        await asyncio.sleep(130)
        assert [job.id[:5] for job in await program_run.jobs()] == ["both@", "both@"]
        view = await newer.schedules.get("both")
        assert [past.outcome for past in view.history] == [TickOutcome.FIRED] * 2
        assert max(event.seconds for event in program_run.events_of(ScheduleFired)) < 0.1

    virtually(scenario)


def test_run_now_creates_a_job_and_keeps_the_ticks() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.takes = 100
        await program_run.app.schedules.upsert("feed", program_run.note.job("x"), every=TURN)
        job = await program_run.app.schedules.run_now("feed")
        again = await program_run.app.schedules.run_now("feed")
        assert (again.id, again.existing) == (job.id, True)
        await program_run.start()
        await asyncio.sleep(1.5 * TURN)
        assert await program_run.ids() == [job.id, "feed@2030-01-01T00:10:00Z"]
        view = await program_run.app.schedules.get("feed")
        assert [past.outcome for past in view.history] == [TickOutcome.RUN, TickOutcome.FIRED]

    virtually(scenario)


def test_a_removed_schedule_is_silent_and_its_name_is_free() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        await program_run.start()
        await program_run.app.schedules.upsert("feed", program_run.note.job("x"), every=60)
        await asyncio.sleep(90)
        assert await program_run.app.schedules.remove("feed", "nothing") == 1
        await asyncio.sleep(600)
        assert len(await program_run.jobs()) == 1
        for pause in (1, 4000):  # kept for an hour, then gone
            await program_run.app.schedules.upsert("feed", program_run.note.job("y"), every=60)
            await asyncio.sleep(90)
            await program_run.app.schedules.remove("feed")
            await asyncio.sleep(pause)
        assert program_run.ran == ["x", "y", "y"]

    virtually(scenario)


def test_start_and_end() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        await program_run.start()
        await program_run.app.schedules.upsert(
            "sale", program_run.note.job("x"), every=100, start=START_TIME + TURN, end=START_TIME + 1.5 * TURN
        )
        await asyncio.sleep(2 * TURN)
        assert [event.tick - START_TIME for event in program_run.events_of(ScheduleFired)] == [
            600,
            700,
            800,
            900,
        ]
        assert (await program_run.app.schedules.get("sale")).state is ScheduleState.ENDED

    virtually(scenario)


def test_no_store_call_is_long_however_many_ticks_are_caught_up() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        rows: list[Any] = [
            (
                f"feed-{number}",
                program_run.note.job("x"),
                {"every": 10, "catch_up": "all", "overlap": "allow"},
            )
            for number in range(7)
        ]
        await program_run.app.schedules.upsert_many(rows)
        await asyncio.sleep(700)
        steps: list[int] = []
        plain = MemoryStore.advance

        async def measured(self: MemoryStore, advances: Any) -> Any:
            steps.append(sum(len(item.jobs) for item in advances))
            return await plain(self, advances)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryStore, "advance", measured)
            await program_run.start()
            await asyncio.sleep(5)
        assert sum(steps) == len(await program_run.jobs()) == 7 * 70
        assert max(steps) <= 100

    virtually(scenario)
