"""`explain` names what a job waits for and when it will start, compared with its real start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.forecast.bench import Bench, virtually
from tidemill import Day, Explanation, JobHandle, Limit, Task
from tidemill.core.calendars import period_at
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.limits import window_calendar
from tidemill.core.pools import LimitChanges
from tidemill.inspect.causes import CauseCode

LAST = 999


async def sent(task: Task[[int], None], number: int = LAST, **options: Any) -> JobHandle[None]:
    return await (task.using(**options) if options else task).enqueue(number)


async def explain_job(bench: Bench, job: JobHandle[None], *codes: CauseCode) -> Explanation:
    """Returns the explanation after a moment in which every startable job has started."""
    await asyncio.sleep(2.0)
    it = await bench.app.explain(job.id)
    assert [cause.code for cause in it.causes] == list(codes), it.sentence
    return it


async def starts_as_told(bench: Bench, it: Explanation, *, within: float = 1.5, share: float = 0.1) -> None:
    assert it.starts_at is not None, it.sentence
    now = bench.clock.wall()
    await bench.done(range(LAST, LAST + 1))
    wait = bench.starts[LAST] - now
    assert abs(it.starts_at - bench.starts[LAST]) <= within + share * wait, f"after {wait}: {it.sentence}"
    assert wait > 1, "or nothing was shown"


LIMITS = {
    "rolling": Limit.requests(5, per="minute"),
    "bucket": Limit.requests(5, per="minute", shape="bucket"),
    "paced": Limit.requests(5, per="minute", shape="paced"),
    "day": Limit.requests(5, per=Day("Asia/Shanghai")),
}


@pytest.mark.parametrize("name", LIMITS)
def test_each_limit_is_named_with_its_next_slot(name: str) -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", LIMITS[name]))
        bench.work()
        await bench.send(task, range(5 if name != "paced" else 1))
        await asyncio.sleep(1)
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_LIMIT)
        assert it.details["limit"] == LIMITS[name].name
        assert f"The pool 'api' allows 5 {LIMITS[name].name}" in it.sentence
        assert it.details["until"] == pytest.approx(it.starts_at, abs=1.5)
        if name == "day":  # nothing happens for hours, which is slow to simulate
            await bench.stop()
            await asyncio.sleep(it.details["until"] - bench.clock.wall() - 5)
            bench.work()
        await starts_as_told(bench, it)

    virtually(scenario)


@pytest.mark.parametrize("from_midnight", [-200.0, 100.0])
def test_the_end_of_a_day_is_not_explained_as_a_used_up_quota(from_midnight: float) -> None:
    async def scenario(bench: Bench) -> None:
        limit = Limit.requests(250, per=Day("Asia/Shanghai"))
        task = bench.task(pool=bench.app.pool("api", limit, midnight=300.0))
        midnight = period_at(window_calendar(limit), bench.clock.wall()).end
        await asyncio.sleep(midnight - bench.clock.wall() + from_midnight)
        bench.work()
        it = await explain_job(bench, await sent(task), CauseCode.POOL_TURN)
        assert "has enough left of its 250 requests per day" in it.sentence
        assert "around the turn of the day in Asia/Shanghai" in it.sentence
        assert it.details["until"] == pytest.approx(midnight + 300, abs=1)
        await starts_as_told(bench, it)

    virtually(scenario)


def test_several_limits_are_all_named_the_last_to_open_first() -> None:
    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", Limit.requests(4, per="minute"), Limit.tokens(100, per=300.0))
        task = bench.task(pool=pool, cost={"tokens": 25})
        bench.work()
        await bench.send(task, range(4))
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_LIMIT, CauseCode.POOL_LIMIT)
        assert [cause.details["limit"] for cause in it.causes] == ["tokens per 300 s", "requests per minute"]
        await starts_as_told(bench, it)

    virtually(scenario)


def test_the_start_names_the_limit_it_waits_for_when_another_is_full_now() -> None:
    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", Limit.requests(4, per=5.0), Limit.requests(20, per=3600.0))
        task = bench.task(pool=pool)
        bench.work()
        await bench.send(task, range(24))
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_LIMIT, CauseCode.BEHIND)
        assert it.details["limit"] == "requests per 5 s"
        assert it.sentence.endswith("; until then it is 20 requests per hour of api that holds it up most.")
        await starts_as_told(bench, it)

    virtually(scenario)


def test_a_concurrency_limit_has_no_exact_end() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", Limit.concurrent(2)), takes=50.0)
        bench.work()
        await bench.send(task, range(2))
        await bench.done(range(2))
        await bench.send(task, range(10, 12))
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_LIMIT)
        assert "The next slot is when a call has ended." in it.sentence
        assert it.details["until"] is None
        assert it.starts_at is not None
        now = bench.clock.wall()
        # How far the running jobs are is unknown: they may end at once, and at the latest in 50 s.
        assert now < it.starts_at <= now + 50.0
        await bench.done(range(LAST, LAST + 1))
        assert bench.starts[LAST] == pytest.approx(bench.starts[10] + 50.0, abs=1.0)
        assert now < bench.starts[LAST] <= now + 50.0

    virtually(scenario)


def test_a_job_behind_others_of_its_lane() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", Limit.requests(5, per="minute")))
        bench.work()
        await bench.send(task, range(28))
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_LIMIT, CauseCode.BEHIND)
        assert it.causes[1].details["ahead"] == 23
        assert "23 jobs of its queue without a key, of the same pools, start before it" in it.sentence
        await starts_as_told(bench, it)

    virtually(scenario)


def test_a_job_behind_more_urgent_jobs() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", Limit.requests(5, per="minute")))
        bench.work()
        await bench.send(task, range(20), priority=1)
        job = await sent(task, priority=7)
        it = await explain_job(bench, job, CauseCode.POOL_LIMIT, CauseCode.BEHIND)
        assert it.causes[1].details["ahead"] == 15, "all that are more urgent and wait"
        later = await sent(task, LAST + 1, priority=9)
        await bench.send(task, range(20, 30), priority=8)
        assert (await bench.app.explain(job.id)).causes[1].details["ahead"] == 15, "none that is less so"
        assert (await bench.app.explain(later.id)).causes[1].details["ahead"] == 26
        await starts_as_told(bench, it)

    virtually(scenario)


def test_a_lane_of_a_keyed_pool() -> None:
    async def scenario(bench: Bench) -> None:
        site = bench.app.pool("site", Limit.requests(2, per="minute"), keyed=True)
        task = bench.task(pool=site.by(lambda number: "odd" if number % 2 else "even"))
        bench.work()
        await bench.send(task, range(1, 11, 2))
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_LIMIT, CauseCode.BEHIND)
        assert "The pool 'site' for 'odd' allows 2 requests per minute" in it.sentence
        assert it.details["key"] == "odd"
        await starts_as_told(bench, it)

    virtually(scenario)


def test_a_pool_closed_by_an_operator() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", Limit.requests(5, per="minute")))
        bench.work()
        await asyncio.sleep(1)
        until = bench.clock.wall() + 400
        await bench.app.inspect.close_pool("api", by="ann", until=until, reason="the bill")
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_CLOSED)
        assert (it.details["by"], it.details["until"], it.starts_at) == ("ann", until, until)
        assert "The pool 'api' was closed by ann at" in it.sentence
        assert "The reason given is: the bill." in it.sentence
        await starts_as_told(bench, it)
        await bench.app.inspect.close_pool("api", by="ann")
        never = await explain_job(bench, await sent(task, 5), CauseCode.POOL_CLOSED)
        assert "until it is opened" in never.sentence
        assert never.starts_at is None

    virtually(scenario)


@pytest.mark.parametrize(
    ("reason", "retry_after"), [(Reason.RATE, 300.0), (Reason.STATED, 300.0), (Reason.SPENDING, None)]
)
def test_a_pool_whose_provider_refused(reason: Reason, retry_after: float | None) -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", Limit.requests(5, per="minute")))
        bench.work()
        await bench.app.client.store()
        refusal = Refusal(reason=reason, retry_after=retry_after, text="slow down, please")
        await bench.app.store.observe([Observation(pool="api", refusal=refusal)])
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_TRIPPED)
        assert f"The provider refused calls of the pool 'api' ({reason})" in it.sentence
        assert "It said: slow down, please." in it.sentence
        if retry_after is None:
            assert "until a person opens it" in it.sentence
            assert it.starts_at is None
            await bench.app.inspect.open_pool("api")
            await bench.done(range(LAST, LAST + 1))
        else:
            await starts_as_told(bench, it)

    virtually(scenario)


def test_during_the_probe_and_the_ramp() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", Limit.requests(10, per="minute")), takes=20.0)
        bench.work()
        await bench.app.client.store()
        refusal = Refusal(reason=Reason.STATED, retry_after=30.0)
        await bench.app.store.observe([Observation(pool="api", refusal=refusal)])
        await bench.send(task, range(3))
        await asyncio.sleep(35)
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_PROBED, CauseCode.BEHIND)
        [running] = [number for number in range(3) if number in bench.starts]
        assert running == 0
        assert "tries it alone" in it.sentence
        await asyncio.sleep(20)
        it = await explain_job(bench, job, CauseCode.POOL_RAMP, CauseCode.BEHIND)
        assert "opens slowly" in it.sentence
        await starts_as_told(bench, it, within=8.0)  # a ramp is simulated in ten steps

    virtually(scenario)


def test_the_reserved_share_and_an_override() -> None:
    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", Limit.tokens(100, per="minute"), reserved_share=0.4, urgent=1)
        task = bench.task(pool=pool, cost={"tokens": 20})
        bench.work()
        await bench.send(task, range(3))
        job = await sent(task)
        it = await explain_job(bench, job, CauseCode.POOL_RESERVED_SHARE)
        assert "held back for priorities up to 1, and the job has 5" in it.sentence
        await starts_as_told(bench, it)
        until = bench.clock.wall() + 300
        changes = LimitChanges(amounts={"tokens per minute": 10.0})
        await bench.app.store.override_pool("api", changes, by="ann", until=until)
        small = await explain_job(bench, await sent(task, 7), CauseCode.POOL_TOO_SMALL)
        assert small.details["until"] == until
        assert "needs 20 at once" in small.sentence
        assert "an override by ann" in small.sentence

    virtually(scenario)


def test_capacity_held_for_a_larger_job() -> None:
    """The large job starts as forecast, and the small ones name the job they wait for."""

    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", Limit.tokens(100, per="minute"))
        small = bench.task("small", pool=pool, cost={"tokens": 10}, queue="small")
        large = bench.task("large", pool=pool, cost={"tokens": 90}, queue="large")
        bench.work()
        for number in range(8):
            await sent(small, number)
            await asyncio.sleep(7)
        job = await sent(large)
        await asyncio.sleep(3)
        late = await sent(small, 50)
        await asyncio.sleep(2)
        it = await bench.app.explain(late.id)
        assert it.code is CauseCode.POOL_HELD, it.sentence
        assert it.details["job"] == job.id
        big = await explain_job(bench, job, CauseCode.POOL_LIMIT)
        await starts_as_told(bench, big)

    virtually(scenario)


def test_a_due_time_a_pause_and_a_pool_together() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", Limit.requests(5, per="minute")))
        bench.work()
        job = await sent(task, delay=200.0)
        it = await explain_job(bench, job, CauseCode.SCHEDULED)
        assert it.starts_at == pytest.approx(bench.clock.wall() + 198, abs=1)
        await bench.app.inspect.pause("default", until=bench.clock.wall() + 300)
        it = await explain_job(bench, job, CauseCode.PAUSED, CauseCode.SCHEDULED)
        assert it.starts_at == pytest.approx(bench.clock.wall() + 298, abs=1)
        await starts_as_told(bench, it, within=2.0)

    virtually(scenario)
