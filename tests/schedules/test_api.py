"""`app.schedule` and `app.schedules`: arguments, refusals and results."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tidemill import ConfigurationError, Limit, ScheduleNotFound, Tidemill, Unique, testing
from tidemill.core.documents import Advance, DocumentKind, DocumentUpdate
from tidemill.schedules.schedule import ScheduleOrigin, ScheduleState
from tidemill.telemetry.events import MaintenanceCrashed
from tidemill.testing import START_TIME, ManualClock

DAILY: Any = {"cron": "0 3 * * *"}


def task(app: Tidemill, name: str) -> Any:
    from tidemill.client.task import Task

    return Task(app.client, app.tasks[name])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "schedule 'x': cron: give either cron='0 3 * * *' or every=3600, not neither"),
        ({"cron": "0 3 * * *", "every": 60}, "schedule 'x': cron: give either"),
        ({"cron": "0 3 * *"}, "schedule 'x': cron: '0 3 * *' is not a cron expression"),
        ({"cron": 3}, "schedule 'x': cron: must be a string, is 3"),
        ({**DAILY, "tz": "Shanghai"}, "schedule 'x': tz: 'Shanghai' is not in the time zone database"),
        ({"every": 0.5}, "schedule 'x': every: must be 1 second or more, is 0.5"),
        ({"every": "1h"}, "schedule 'x': every: must be a number of seconds or a timedelta, is '1h'"),
        ({**DAILY, "start": datetime(2030, 1, 1)}, "schedule 'x': start: a datetime needs a time zone"),  # noqa: DTZ001 - wrong on purpose
        ({**DAILY, "start": 10.0, "end": 5.0}, "schedule 'x': end: must not be before start"),
        ({**DAILY, "start": 1e12}, "schedule 'x': start: must be a Unix time from 1970 to the year 8900, is"),
        ({"every": 60, "start": -1e18}, "schedule 'x': start: must be a Unix time from 1970"),
        ({"every": 1e300}, "schedule 'x': every: must be 3153600000 seconds (100 years) or less, is 1e+300"),
        ({**DAILY, "jitter": 1e12}, "schedule 'x': jitter: must be 3153600000 seconds (100 years) or less"),
        ({**DAILY, "catch_up": "maybe"}, "schedule 'x': catch_up: must be one of skip, once, all"),
        ({**DAILY, "overlap": True}, "schedule 'x': overlap: must be one of skip, allow, is True"),
        ({**DAILY, "jitter": -1}, "schedule 'x': jitter: must be 0 seconds or more, is -1"),
        ({**DAILY, "timezone": "UTC"}, "schedule 'x': schedule: unknown option 'timezone'"),
    ],
)
async def test_bad_settings_are_named(app: Tidemill, options: Any, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        app.schedule("x", task(app, "sweep"), **options)
    assert str(caught.value).startswith(says)
    with pytest.raises(ConfigurationError) as caught:
        await app.schedules.upsert("x", task(app, "sweep"), **options)
    assert str(caught.value).startswith(says)
    assert (await app.schedules.list()).schedules == ()


async def test_bad_names_and_tasks_are_named(app: Tidemill) -> None:
    sweep, refresh = task(app, "sweep"), task(app, "refresh")
    other = Tidemill("memory://")
    stranger = other.task(name="stranger")(_nothing)
    cases: list[tuple[Any, Any, str]] = [
        ("", sweep, "schedule: name: must have 1 to 200 characters, has 0"),
        ("x" * 151, sweep, "schedule: name: must have 1 to 150 characters, has 151"),
        (7, sweep, "schedule: name: must be a string, is 7"),
        ("x", _nothing, "schedule 'x': task: give a task, or a job made by task.job(…), not"),
        (
            "x",
            refresh,
            "schedule 'x': task 'refresh': missing a required argument: 'feed'; give its arguments",
        ),
        ("x", stranger, "schedule 'x': task: 'stranger' is a task of another application"),
        ("x", refresh.using(delay=5).job(1), "schedule 'x': delay: the schedule says when its jobs start"),
    ]
    for name, what, says in cases:
        with pytest.raises(ConfigurationError) as caught:
            app.schedule(name, what, cron="0 3 * * *")
        assert str(caught.value).startswith(says)
    app.schedule("twice", sweep, cron="0 3 * * *")
    with pytest.raises(ConfigurationError, match="schedule 'twice' is declared twice"):
        app.schedule("twice", sweep, every=60)


def _nothing() -> None: ...


async def test_a_missing_schedule_is_named(app: Tidemill) -> None:
    steps = [
        app.schedules.get("x"),
        app.schedules.pause("x"),
        app.schedules.resume("x"),
        app.schedules.run_now("x"),
        app.schedules.override("x", by="ann", every=60),
        app.schedules.clear_override("x"),
    ]
    for step in steps:
        with pytest.raises(ScheduleNotFound, match="there is no schedule 'x'"):
            await step
    assert await app.schedules.remove("x") == 0


async def test_the_same_upsert_changes_nothing_and_a_new_rule_starts_now(
    app: Tidemill, clock: ManualClock
) -> None:
    job = task(app, "refresh").job
    first = await app.schedules.upsert("feed-7", job(7), every=3600)
    clock.advance(1800)
    again = await app.schedules.upsert("feed-7", job(7), every=timedelta(hours=1))
    assert again.next == first.next
    [document] = await app.store.documents(DocumentKind.SCHEDULE, ["feed-7"])
    assert document is not None
    assert document.revision == 1
    other = await app.schedules.upsert("feed-7", job(8), every=900)
    assert other.next[0] - clock.wall() == pytest.approx(900, abs=1)
    assert bytes(other.arguments) == b'{"feed":8}'
    assert other.origin is ScheduleOrigin.DYNAMIC


async def test_only_options_that_differ_from_the_task_are_stored(app: Tidemill) -> None:
    sweep = task(app, "sweep")
    await app.schedules.upsert("plain", sweep, **DAILY)
    await app.schedules.upsert(
        "other", sweep.using(priority=1, queue="day", tags=["a"], unique=Unique("u")).job(deep=True), **DAILY
    )
    documents = await app.store.documents(DocumentKind.SCHEDULE, ["plain", "other"])
    plain, other = [msgspec.json.decode(document.record)["work"] for document in documents if document]
    assert plain == {"task": "sweep", "payload": {}}
    assert set(other) == {"task", "payload", "priority", "queue", "tags", "unique"}
    made = [await (await app.schedules.run_now(name)).status() for name in ("plain", "other")]
    assert [(one.queue, one.priority, one.tags) for one in made] == [("night", 7, ()), ("day", 1, ("a",))]
    assert [one.unique_key for one in made] == ["schedule plain", "u"]


async def test_pools_and_costs_come_from_the_current_code(app: Tidemill) -> None:
    pool = app.pool("api", Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute"))

    @app.task(name="ask", pool=pool, cost=lambda words: {"tokens": 2 * words}, key=lambda words: f"k{words}")
    async def ask(words: int) -> None: ...

    await app.schedules.upsert("asking", ask.job(30), every=60)
    await app.schedules.upsert("dear", ask.using(cost={"tokens": 500}).job(30), every=60)
    jobs = [await (await app.schedules.run_now(name)).status() for name in ("asking", "dear")]
    assert [job.needs[0].units["tokens"] for job in jobs] == [60, 500]
    assert [job.key for job in jobs] == ["k30", "k30"]


async def test_a_declared_schedule_cannot_be_changed_by_a_call(app: Tidemill) -> None:
    app.schedule("nightly", task(app, "sweep"), cron="0 3 * * *")
    await app.worker(until_idle=True, heartbeat_thread=False, isolation=False).run()
    with pytest.raises(
        ConfigurationError, match="schedule 'nightly': code declares it; change it there, or override"
    ):
        await app.schedules.upsert("nightly", task(app, "sweep"), every=60)
    assert (await app.schedules.get("nightly")).settings.cron == "0 3 * * *"


async def test_overrides_join_and_are_cleared_one_by_one(app: Tidemill) -> None:
    await app.schedules.upsert("x", task(app, "sweep"), every=60)
    await app.schedules.override("x", by="ann", jitter=5, until=START_TIME + 1e6)
    view = await app.schedules.override("x", by="bob", reason="night", cron="0 4 * * *", tz="Asia/Tokyo")
    assert (view.settings.every, view.settings.cron, view.settings.jitter) == (None, "0 4 * * *", 5)
    assert view.override is not None
    assert (view.override.by, view.override.until) == ("bob", START_TIME + 1e6)
    view = await app.schedules.clear_override("x", "cron", "tz")
    assert (view.settings.every, view.settings.cron, view.settings.jitter) == (60, None, 5)
    assert (await app.schedules.clear_override("x")).override is None
    for wrong, says in (({"by": ""}, "by: must say who"), ({"by": "ann", "tz": "x"}, "tz: 'x' is not in")):
        with pytest.raises(ConfigurationError, match=says):
            await app.schedules.override("x", every=60, **wrong)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigurationError, match="name at least one setting"):
        await app.schedules.override("x", by="ann")
    with pytest.raises(ConfigurationError, match="no setting 'corn'"):
        await app.schedules.clear_override("x", "corn")


async def test_thousands_of_schedules_are_listed_in_pages(app: Tidemill) -> None:
    job = task(app, "refresh").job
    await app.schedules.upsert_many(
        [(f"feed-{number}", job(number), {"every": 3600}) for number in range(1050)]
    )
    seen: list[str] = []
    cursor = None
    while True:
        page = await app.schedules.list(limit=400, cursor=cursor)
        seen += [view.name for view in page.schedules]
        if (cursor := page.cursor) is None:
            break
    assert sorted(seen) == sorted(f"feed-{number}" for number in range(1050))
    assert await app.schedules.counts() == {"active": 1050}
    assert await app.schedules.remove(*seen[:50]) == 50
    assert await app.schedules.counts() == {"active": 1000}
    assert [view.state for view in (await app.schedules.list(states=["paused"])).schedules] == []


async def test_nothing_is_changed_when_one_of_many_is_wrong(app: Tidemill) -> None:
    job = task(app, "refresh").job
    with pytest.raises(ConfigurationError, match="schedule 'b': every"):
        await app.schedules.upsert_many([("a", job(1), {"every": 60}), ("b", job(2), {"every": 0})])
    assert await app.schedules.counts() == {}


async def test_two_concurrent_changes_both_apply(app: Tidemill) -> None:
    await app.schedules.upsert("x", task(app, "sweep"), every=60)
    await asyncio.gather(
        app.schedules.pause("x", reason="why"),
        app.schedules.override("x", by="ann", jitter=5),
        app.schedules.upsert("x", task(app, "sweep").job(deep=True), every=60),
    )
    view = await app.schedules.get("x")
    assert (view.state, view.settings.jitter) == (ScheduleState.PAUSED, 5)
    assert bytes(view.arguments) == b'{"deep":true}'


async def test_concurrent_run_now_calls_return_the_same_job(app: Tidemill) -> None:
    """However late one call sees the other, no reply and no history names a job that does not exist."""
    await app.schedules.upsert("x", task(app, "sweep"), every=60)
    jobs = await asyncio.gather(*(app.schedules.run_now("x") for _ in range(3)))
    assert {job.id for job in jobs} == {(await jobs[0].status()).id}
    assert sorted(bool(job.existing) for job in jobs) == [False, True, True]
    assert [past.job for past in (await app.schedules.get("x")).history] == [jobs[0].id]


async def test_concurrent_removals_count_one(app: Tidemill) -> None:
    await app.schedules.upsert("x", task(app, "sweep"), every=60)
    assert sorted(await asyncio.gather(app.schedules.remove("x"), app.schedules.remove("x"))) == [0, 1]


async def test_an_invalid_list_option_is_named(app: Tidemill) -> None:
    with pytest.raises(ConfigurationError, match=r"states: must be one of active, paused, .* is 'dead'"):
        await app.schedules.list(states=["dead"])
    with pytest.raises(ConfigurationError, match="origin: must be one of declared, dynamic, is 'code'"):
        await app.schedules.list(origin="code")


async def test_start_may_be_a_datetime(app: Tidemill) -> None:
    start = datetime.fromtimestamp(START_TIME, UTC) + timedelta(days=1)
    view = await app.schedules.upsert("x", task(app, "sweep"), every=60, start=start)
    assert view.next[0] == start.timestamp()


async def test_an_unreadable_schedule_hides_no_other(app: Tidemill) -> None:
    """A schedule written by a newer version, or damaged by hand."""
    await app.schedules.upsert("fine", task(app, "sweep"), every=60)
    now = (await app.store.read_clock()).wall
    odd = DocumentUpdate(name="dynamic", state="active", record=b'{"name":7}', due=now - 100)
    await app.store.advance([Advance(kind=DocumentKind.SCHEDULE, id="odd", expected=0, next=odd)])
    assert [view.name for view in (await app.schedules.list()).schedules] == ["fine"]
    with pytest.raises(ConfigurationError, match="schedule 'odd': its record is of a newer version"):
        await app.schedules.get("odd")
    events: list[MaintenanceCrashed] = []
    app.on(MaintenanceCrashed)(events.append)
    await app.worker(until_idle=True, heartbeat_thread=False, isolation=False).run()
    assert [event.operation for event in events] == ["schedule odd"]
    await app.schedules.upsert("odd", task(app, "sweep"), every=60)
    assert await app.schedules.remove("odd") == 1


async def test_a_unique_key_reaches_the_job(app: Tidemill) -> None:
    unique = Unique("u", on_conflict="replace", period=timedelta(minutes=5))
    await app.schedules.upsert("x", task(app, "sweep").using(unique=unique), every=60)
    job = await (await app.schedules.run_now("x")).status()
    assert (job.unique_key, job.unique_until) == ("u", job.created + 300)


NOON = datetime(2030, 6, 1, 12, tzinfo=UTC).timestamp()


def program() -> tuple[Tidemill, list[str]]:
    app, ran = Tidemill("memory://"), list[str]()

    @app.task(name="note")
    async def note(text: str) -> None:
        ran.append(text)

    app.schedule("nightly", note.job("night"), cron="0 3 * * *", tz="Asia/Shanghai")
    return app, ran


def test_a_day_has_one_night() -> None:
    app, ran = program()
    with testing.kit(app, start=NOON) as kit:
        kit.run_for(86_400)
        assert ran == ["night"]
        assert kit.run(app.schedules.get("nightly")).last_job == "nightly@2030-06-01T19:00:00Z"
        kit.run_for(3 * 86_400)
        assert ran == ["night"] * 4


async def test_the_async_kit_fires_schedules_too() -> None:
    app, ran = program()
    async with testing.kit(app, start=NOON) as kit:
        await kit.run_for(86_400)
        assert ran == ["night"]
        await app.schedules.run_now("nightly")
        await kit.run_until_idle()
        assert ran == ["night", "night"]
