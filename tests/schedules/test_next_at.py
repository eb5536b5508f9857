"""`next_at`: the next tick of an interval at a requested time, and the interval counted from it (I12)."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.schedules.test_advance import VirtualProgram, virtually
from tests.schedules.test_api import task
from tests.schedules.test_leader_crashes import History
from tidemill import ConfigurationError, Tidemill, testing
from tidemill.core.documents import DocumentKind
from tidemill.errors import StoreUnavailable
from tidemill.schedules.schedule import ScheduleState, TickOutcome
from tidemill.telemetry.events import ScheduleFired
from tidemill.testing import START_TIME, ManualClock, run_virtual

HOUR = 3600.0


async def revision(app: Tidemill, name: str) -> int:
    [document] = await app.store.documents(DocumentKind.SCHEDULE, [name])
    assert document is not None
    return document.revision


async def test_the_interval_is_counted_from_next_at(app: Tidemill, clock: ManualClock) -> None:
    job = task(app, "refresh").job(7)
    at = clock.wall() + 100
    view = await app.schedules.upsert("feed-7", job, every=HOUR, next_at=at)
    assert view.next[:3] == (at, at + HOUR, at + 2 * HOUR)
    moved = datetime.fromtimestamp(at, UTC) + timedelta(seconds=50)
    assert (await app.schedules.upsert("feed-7", job, every=HOUR, next_at=moved)).next[0] == at + 50
    earlier = clock.wall() + 10
    assert (await app.schedules.upsert("feed-7", job, every=HOUR, next_at=earlier)).next[0] == earlier


async def test_the_same_next_at_changes_nothing(app: Tidemill, clock: ManualClock) -> None:
    job = task(app, "refresh").job(7)
    options: Any = {"every": HOUR, "next_at": clock.wall() - 100}
    first = await app.schedules.upsert("feed-7", job, **options)
    clock.advance(600)
    assert (await app.schedules.upsert("feed-7", job, **options)).next == first.next
    assert (await app.schedules.upsert("feed-7", job, every=HOUR)).next == first.next
    await app.schedules.upsert_many([("feed-7", job, options)])
    assert await revision(app, "feed-7") == 1
    await app.schedules.upsert_many([("feed-7", job, {"every": HOUR, "next_at": clock.wall() + 5})])
    assert await revision(app, "feed-7") == 2


async def test_other_arguments_with_the_same_next_at_move_no_tick(app: Tidemill, clock: ManualClock) -> None:
    job = task(app, "refresh").job
    first = await app.schedules.upsert("feed-7", job(7), every=HOUR, next_at=0.0)
    clock.advance(600)
    view = await app.schedules.upsert("feed-7", job(8), every=HOUR, next_at=0.0)
    assert bytes(view.arguments) == b'{"feed":8}'
    assert view.next == first.next


async def test_a_past_next_at_is_one_tick_now(app: Tidemill, clock: ManualClock) -> None:
    for number, catch_up in enumerate(("skip", "once", "all")):
        options: Any = {"every": 60, "catch_up": catch_up, "next_at": clock.wall() - 10_000}
        name = f"feed-{number}"
        now = clock.wall()
        view = await app.schedules.upsert(name, task(app, "refresh").job(number), **options)
        assert view.next[:2] == (now, now + 60)
        await app.worker(until_idle=True, heartbeat_thread=False, isolation=False).run()
        view = await app.schedules.get(name)
        assert [past.outcome for past in view.history] == [TickOutcome.FIRED]
        assert view.next[0] == now + 60


async def test_an_existing_schedule_ticks_at_once_too(app: Tidemill, clock: ManualClock) -> None:
    job = task(app, "refresh").job(7)
    await app.schedules.upsert("feed-7", job, every=HOUR)
    clock.advance(1000)
    view = await app.schedules.upsert("feed-7", job, every=HOUR, next_at=0.0)
    assert view.next[:2] == (clock.wall(), clock.wall() + HOUR)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cron": "0 3 * * *", "next_at": 5.0}, "next_at: must come with every; a cron expression"),
        ({"every": 60, "start": 5.0, "next_at": 5.0}, "next_at: must come without start; both say"),
        ({"every": 60, "next_at": "soon"}, "next_at: must be a Unix time or a datetime with a time zone"),
        ({"every": 60, "next_at": -1.0}, "next_at: must be a Unix time from 1970 to the year 8900, is -1"),
        ({"every": 60, "next_at": float("nan")}, "next_at: must be a Unix time from 1970"),
        ({"every": 60, "next_at": datetime(2030, 1, 1)}, "next_at: a datetime needs a time zone"),  # noqa: DTZ001 - wrong on purpose
    ],
)
async def test_a_bad_next_at_is_named(app: Tidemill, options: Any, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await app.schedules.upsert("x", task(app, "sweep"), **options)
    assert str(caught.value).startswith(f"schedule 'x': {says}")
    assert (await app.schedules.list()).schedules == ()


async def test_a_declaration_takes_no_next_at(app: Tidemill) -> None:
    with pytest.raises(ConfigurationError, match="unknown option 'next_at'"):
        app.schedule("x", task(app, "sweep"), every=60, next_at=5.0)  # type: ignore[call-arg]  # wrong on purpose


async def test_settings_with_their_own_times_end_it(app: Tidemill, clock: ManualClock) -> None:
    sweep, at = task(app, "sweep"), clock.wall() + 30
    await app.schedules.upsert("x", sweep, every=60, next_at=at)
    assert (await app.schedules.upsert("x", sweep, every=45)).next[:2] == (at, at + 45)
    start = clock.wall() + 500
    assert (await app.schedules.upsert("x", sweep, every=60, start=start)).next[0] == start
    assert (await app.schedules.upsert("x", sweep, every=60)).next[0] == clock.wall() + 60
    assert (await app.schedules.upsert("x", sweep, every=60, next_at=at)).next[0] == at


async def test_pause_and_override_stay(app: Tidemill, clock: ManualClock) -> None:
    sweep, now = task(app, "sweep"), clock.wall()
    await app.schedules.upsert("x", sweep, every=60)
    await app.schedules.pause("x", until=now + 100)
    view = await app.schedules.upsert("x", sweep, every=60, next_at=now + 10)
    assert (view.state, view.next[0]) == (ScheduleState.PAUSED, now + 130)
    await app.schedules.resume("x")
    await app.schedules.override("x", by="ann", every=600, until=now + 5000)
    view = await app.schedules.upsert("x", sweep, every=60, next_at=now + 20)
    assert view.next[0] == now + 600, "an operator's times go before those of a call"
    assert (await app.schedules.clear_override("x")).next[0] == now + 20
    await app.schedules.override("x", by="ann", jitter=5)
    assert (await app.schedules.upsert("x", sweep, every=60, next_at=now + 40)).next[0] == now + 40


async def test_an_operator_moves_the_next_tick(app: Tidemill, clock: ManualClock) -> None:
    sweep, at = task(app, "sweep"), clock.wall() + 7
    app.schedule("declared", sweep, every=60)
    app.schedule("nightly", sweep, cron="0 3 * * *")
    await app.worker(until_idle=True, heartbeat_thread=False, isolation=False).run()
    assert (await app.schedules.move("declared", at)).next[:2] == (at, at + 60)
    await app.worker(until_idle=True, heartbeat_thread=False, isolation=False).run()
    assert (await app.schedules.get("declared")).next[0] == at, "a deploy keeps it"
    with pytest.raises(ConfigurationError, match="schedule 'nightly': next_at: must come with every"):
        await app.schedules.move("nightly", at)
    await app.schedules.override("declared", by="ann", every=600)
    with pytest.raises(ConfigurationError, match="schedule 'declared': next_at: an override sets its times"):
        await app.schedules.move("declared", at + 1)


async def test_concurrent_moves_leave_one_of_them(app: Tidemill, clock: ManualClock) -> None:
    job, now = task(app, "refresh").job(7), clock.wall()
    times = [now + 10 * number for number in range(1, 6)]
    await asyncio.gather(*(app.schedules.upsert("x", job, every=60, next_at=at) for at in times))
    view = await app.schedules.get("x")
    assert view.next[0] in times
    assert view.next[1] == view.next[0] + 60


class Feed:
    """A feed whose handler requests its next run, as an offset from its end; None requests none."""

    def __init__(self, program_run: VirtualProgram, offset: float | None, takes: float = 5.0) -> None:
        self.offset, self.takes = offset, takes
        self.started: list[float] = []
        app = program_run.app

        @app.task(name="fetch")
        async def fetch(feed: int) -> None:
            self.started.append(app.clock.wall() - START_TIME)
            await asyncio.sleep(self.takes)
            if self.offset is not None:
                await app.schedules.upsert(
                    "feed-7", fetch.job(feed), every=100, next_at=app.clock.wall() + self.offset
                )

        self.fetch = fetch

    def starts(self) -> list[int]:
        return [round(start) for start in self.started]


def test_the_end_of_a_run_starts_a_new_interval() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        feed = Feed(program_run, 100)
        await program_run.start()
        await program_run.app.schedules.upsert("feed-7", feed.fetch.job(7), every=100, next_at=0.0)
        await asyncio.sleep(330)
        assert feed.starts() == [0, 105, 210, 315]
        view = await program_run.app.schedules.get("feed-7")
        assert {past.outcome for past in view.history} == {TickOutcome.FIRED}

    virtually(scenario)


def test_a_run_that_never_ends_leaves_the_old_rhythm() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        feed = Feed(program_run, 100)
        await program_run.app.schedules.upsert("feed-7", feed.fetch.job(7), every=100, next_at=0.0)
        await program_run.start()
        await asyncio.sleep(110)
        feed.offset = None  # from here on the handler does not reach its end
        await asyncio.sleep(220)
        assert feed.starts() == [0, 105, 205, 305]

    virtually(scenario)


@pytest.mark.parametrize("offset", [-1000.0, 0.0, 0.5])
def test_a_tick_requested_by_its_own_job_waits_for_the_end_of_that_job(offset: float) -> None:
    """The job still runs for two minutes when its tick comes. Skipping the tick would lose an interval."""

    async def scenario(program_run: VirtualProgram) -> None:
        started: list[float] = []
        app = program_run.app

        @app.task(name="fetch")
        async def fetch(feed: int) -> None:
            started.append(app.clock.wall() - START_TIME)
            if len(started) == 1:
                await app.schedules.upsert(
                    "feed-7", fetch.job(feed), every=10_000, next_at=app.clock.wall() + offset
                )
                await asyncio.sleep(120)

        await app.schedules.upsert("feed-7", fetch.job(7), every=10_000, next_at=0.0)
        await program_run.start()
        await asyncio.sleep(400)
        assert len(started) == 2
        assert 120 <= started[1] < 151
        view = await app.schedules.get("feed-7")
        assert [past.outcome for past in view.history] == [TickOutcome.FIRED] * 2
        assert view.next[0] == view.history[1].tick + 10_000

    virtually(scenario)


@pytest.mark.parametrize("offset", [0.0, -1e6])
def test_a_job_that_runs_again_at_once_waits_a_second_at_most(offset: float) -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        feed = Feed(program_run, offset)
        await program_run.app.schedules.upsert("feed-7", feed.fetch.job(7), every=100, next_at=0.0)
        await program_run.start()
        await asyncio.sleep(30)
        gaps = [later - earlier for earlier, later in zip(feed.started, feed.started[1:], strict=False)]
        assert gaps
        assert all(5 <= gap < 6.2 for gap in gaps)

    virtually(scenario)


def test_a_later_request_replaces_a_tick_that_waits() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.takes = 50
        upsert, job = program_run.app.schedules.upsert, program_run.note.job("x")
        await program_run.start()
        await upsert("x", job, every=1000, next_at=0.0)
        await asyncio.sleep(10)
        await upsert("x", job, every=1000, next_at=START_TIME + 20)
        await asyncio.sleep(20)
        await upsert("x", job, every=1000, next_at=START_TIME + 300)
        await asyncio.sleep(500)
        ticks = [event.tick - START_TIME for event in program_run.events_of(ScheduleFired)]
        assert ticks == [pytest.approx(0, abs=0.1), 300]

    virtually(scenario)


def test_overlap_allow_starts_the_requested_tick_beside_the_last_job() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        program_run.takes = 50
        upsert, job = program_run.app.schedules.upsert, program_run.note.job("x")
        await program_run.start()
        await upsert("x", job, every=1000, overlap="allow", next_at=0.0)
        await asyncio.sleep(10)
        await upsert("x", job, every=1000, overlap="allow", next_at=START_TIME)
        await asyncio.sleep(1)
        assert program_run.ran == ["x", "x"]

    virtually(scenario)


def test_i12_a_clock_that_was_set_back_fires_no_tick_twice() -> None:
    async def scenario(program_run: VirtualProgram) -> None:
        upsert, job = program_run.app.schedules.upsert, program_run.note.job("x")
        await program_run.start()
        await upsert("x", job, every=1000, next_at=0.0)
        await asyncio.sleep(10)
        program_run.clock.step_wall(-5)
        await upsert("x", job, every=1000, next_at=START_TIME)
        await upsert("x", job, every=1000, next_at=START_TIME - 1)
        await asyncio.sleep(10)
        ids = await program_run.ids()
        assert len(ids) == 2
        assert ids == sorted(ids)

    virtually(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_i12_holds_while_next_at_moves_and_leaders_die(seed: int) -> None:
    """Three workers of which any may believe that it leads, with slow calls and lost replies."""

    async def main() -> None:
        history = History(seed)
        await history.store.open()
        for _ in range(3):
            history.start()
        app = history.program()
        await app.client.store()
        for step in range(60):
            offset = history.chance.uniform(-20, 5)
            options: Any = {"every": 7, "catch_up": "all", "overlap": ("allow", "skip")[step % 2]}
            with suppress(StoreUnavailable):  # the reply was lost; the write may have happened
                await app.schedules.upsert(
                    "moved", task(app, "note"), next_at=history.clock.wall() + offset, **options
                )
            if step % 5 == 0:
                history.kill()
            await asyncio.sleep(history.chance.expovariate(0.5))
        await asyncio.sleep(30)
        ticks = history.ticks("moved")
        assert max(Counter(ticks).values()) == 1
        assert ticks == sorted(ticks), "ticks only go forward"
        assert len(ticks) > 10

    run_virtual(main(), seed=seed)


def test_the_test_kit_runs_a_requested_tick_at_once() -> None:
    app, ran = Tidemill("memory://"), list[int]()

    @app.task(name="fetch")
    async def fetch(feed: int) -> None:
        ran.append(feed)

    with testing.kit(app) as kit:
        kit.run(app.schedules.upsert("feed-7", fetch.job(7), every=60, next_at=0.0))
        kit.run_until_idle()
        assert ran == [7]
        kit.run_for(61)
        assert ran == [7, 7]
