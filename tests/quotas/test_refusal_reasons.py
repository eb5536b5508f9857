"""Every reason for a refusal, from the handler's exception to the next claim.

Checks when the next call is made, how many calls probe first, and what the job is charged (I15, I16)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.quotas.fleet import Fleet, MakeStore, run_fleet
from tidemill import Day, Job, Limit, Retry, State, Tidemill, TimeOfDay
from tidemill.contract.pools import PoolView
from tidemill.core.filters import Filter
from tidemill.telemetry.events import Event, JobRetrying, PoolClosed, PoolOpened, PoolProbed
from tidemill.testing.virtual_loop import START_TIME

OPTIONS: dict[str, Any] = {
    "poll": 60.0,
    "lease": 60.0,
    "reclaim_every": 60.0,
    "lead_every": 3600.0,
    "prune_every": 3600.0,
}


class ClientError(Exception):
    """An error as client libraries raise it."""

    def __init__(self, status: int, body: Any = None, **headers: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code, self.body = status, body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class RefusalReport(msgspec.Struct):
    """The times of calls in seconds, and the final state of jobs, pool and events."""

    calls: list[float]
    jobs: list[Job]
    pool: PoolView
    events: list[Event]

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    @property
    def attempts(self) -> list[int]:
        return [job.attempts for job in self.jobs]


Script = Callable[[int], Exception | None]
"""Returns the answer to the call with this number, from 0."""


class RefusalCase:
    def __init__(self, make: MakeStore) -> None:
        self._make = make

    def run(
        self, script: Script, *limits: Limit, jobs: int = 5, seconds: float = 600.0, **options: Any
    ) -> RefusalReport:
        return run_fleet(self._run(script, limits, jobs, seconds, options))

    async def _run(
        self, script: Script, limits: tuple[Limit, ...], jobs: int, seconds: float, options: dict[str, Any]
    ) -> RefusalReport:
        calls: list[float] = []
        events: list[Event] = []
        lasts, retry = options.pop("lasts", 0.5), options.pop("retry", Retry(attempts=1))
        concurrency = options.pop("concurrency", 3)

        def write(app: Tidemill) -> Any:
            pool = app.pool("api", *(limits or (Limit.requests(20, per="minute"),)), **options)
            app.on()(events.append)

            @app.task(name="ask", pool=pool, retry=retry)
            async def ask(number: int) -> None:
                calls.append(asyncio.get_running_loop().time())
                answer = script(len(calls) - 1)
                await asyncio.sleep(lasts)
                if answer is not None:
                    raise answer

            return ask

        fleet = Fleet(write, self._make, seed=5)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(jobs))
            fleet.start(2, concurrency=concurrency, **OPTIONS)
            await fleet.drained(within=seconds, every=max(1.0, seconds / 500))
            page = await app.store.find(Filter(), limit=jobs)
            [view] = await app.store.pools()
        return RefusalReport(calls, list(page.jobs), view, events)


@pytest.fixture
def case(make_at_length: MakeStore) -> RefusalCase:
    return RefusalCase(make_at_length)


def first(answer: Exception, count: int = 6) -> Script:
    """Refuses the calls that are in flight together, and answers all later ones."""
    return lambda number: answer if number < count else None


def test_a_rate_waits_for_its_hint_without_a_probe(case: RefusalCase) -> None:
    report = case.run(first(ClientError(429, retry_after="30"), 5))
    assert max(report.calls[:5]) < 1
    assert all(30.5 <= at < 45 for at in report.calls[5:])
    assert len([at for at in report.calls if at < 35]) > 6, "nobody goes first"
    assert report.attempts == [1] * 5
    assert (report.count(PoolClosed), report.count(PoolProbed), report.count(PoolOpened)) == (1, 0, 1)


def test_a_rate_without_a_hint_waits_for_the_window(case: RefusalCase) -> None:
    body = {"error": {"code": "rate_limit_exceeded", "type": "requests", "message": "slow"}}
    report = case.run(first(ClientError(429, body), 5))
    assert 60.5 <= report.calls[5] < 75


def test_a_stated_reset_is_kept_and_probed(case: RefusalCase) -> None:
    """GLM's 1308 states the time of the reset in Shanghai's time zone."""
    text = "已达到使用上限。您的限额将在 2030-01-01 08:05:00 重置。"
    report = case.run(first(ClientError(429, {"error": {"code": "1308", "message": text}}), 5))
    assert report.calls[5] >= 300
    assert report.calls[6] - report.calls[5] >= 0.5, "one tries, the others wait for its answer"
    assert report.attempts == [1] * 5
    assert (report.count(PoolClosed), report.count(PoolProbed), report.count(PoolOpened)) == (1, 1, 1)


def test_without_credit_only_a_person_opens(case: RefusalCase) -> None:
    body = {"error": {"code": "insufficient_quota", "message": "check your plan"}}
    report = case.run(first(ClientError(429, body), 1000), seconds=4 * 3600.0, jobs=2)
    assert max(report.calls) < 1
    assert report.attempts == [0, 0]
    assert [closure.until for closure in report.pool.closures] == [None]


def test_or_a_slow_probe_where_it_is_wanted(case: RefusalCase) -> None:
    body = {"error": {"code": "insufficient_quota", "message": "check your plan"}}
    report = case.run(first(ClientError(429, body), 4), probe_every=3600.0, seconds=2 * 3600.0)
    assert [round(at / 3600) for at in report.calls if at > 60][:2] == [1, 1]
    assert report.attempts == [1] * 5


def test_too_many_at_once_lowers_the_cap_and_waits_for_one_to_end(case: RefusalCase) -> None:
    body = {"detail": {"status": "too_many_concurrent_requests"}}
    refused = ClientError(429, body)
    report = case.run(lambda number: refused if number == 3 else None, Limit.concurrent(6), jobs=8, lasts=4.0)
    assert report.attempts == [1] * 8
    assert report.count(PoolClosed) == 0
    assert len(report.calls) == 9
    again = report.calls[6:]
    assert all(at >= 4 for at in again), "the refused one goes when another has ended"


def test_one_overload_that_meets_many_calls_spends_no_attempt(case: RefusalCase) -> None:
    """An overload refuses sixteen calls in flight: it is one incident, and the pool is charged for it."""
    report = case.run(
        first(ClientError(529), 16),
        jobs=16,
        concurrency=8,
        seconds=3600.0,
        retry=Retry(attempts=2, first=1, jitter=0),
    )
    assert max(report.calls[:16]) < 1
    assert report.attempts == [1] * 16
    assert all(job.state is State.DONE for job in report.jobs)
    assert report.count(JobRetrying) == 0
    assert (report.count(PoolClosed), report.count(PoolProbed), report.count(PoolOpened)) == (1, 1, 1)


def test_a_provider_that_stays_overloaded_is_asked_ever_less_often(case: RefusalCase) -> None:
    report = case.run(first(ClientError(529), 1000), jobs=3, seconds=12_000.0)
    assert set(report.attempts) == {0}, "the budget comes back faster than a lone probe spends it"
    assert len(report.calls) < 60
    waits = [later - sooner for sooner, later in itertools.pairwise(report.calls)]
    assert max(waits[:6]) < 60 < max(waits) <= 611


def test_overload_that_ends_costs_nothing(case: RefusalCase) -> None:
    report = case.run(first(ClientError(503), 6))
    assert report.attempts == [1] * 5
    assert all(job.state is State.DONE for job in report.jobs)


def test_too_large_for_the_provider_fails_alone(case: RefusalCase) -> None:
    report = case.run(lambda number: ClientError(413) if number == 2 else None)
    assert sorted(job.state for job in report.jobs) == [State.DONE] * 4 + [State.FAILED]
    assert max(report.calls) < 3
    assert report.count(PoolClosed) == 0


def test_a_429_that_says_nothing_is_a_minutes_first_and_then_tried_ever_more_seldom(
    case: RefusalCase,
) -> None:
    """A daily limit of 500 with hardly any use is not used up."""
    report = case.run(
        first(ClientError(429), 1000),
        Limit.requests(20, per="minute"),
        Limit.requests(500, per=Day("UTC")),
        seconds=4_000.0,
    )
    begun = report.calls[0]
    assert begun == pytest.approx(5, abs=0.1), "the turn of the day is waited for"
    late = [at for at in report.calls if at > begun + 1]
    gaps = [after - before for before, after in itertools.pairwise([begun, *late])]
    assert [60 <= gaps[0] < 80, 120 <= gaps[1] < 140, 240 <= gaps[2] < 260] == [True] * 3
    until = report.pool.closures[0].until
    assert until is not None
    assert until < START_TIME + 4_000 + 3_600, "it does not wait for midnight"
    assert set(report.attempts) == {0}


def test_n4_resource_exhausted_alone_is_a_minute_and_the_day_when_it_comes_again(case: RefusalCase) -> None:
    report = case.run(
        first(RuntimeError("RESOURCE_EXHAUSTED"), 1000),
        seconds=40_000.0,
        jobs=3,
    )
    late = [at for at in report.calls if at > 1]
    assert 60 <= late[0] < 75
    assert len(late) == 2, "8 h to midnight in Los Angeles, and 5 min; then one tries again"
    assert 8 * 3600 + 300 <= late[1] < 8 * 3600 + 320
    assert set(report.attempts) == {0}


def test_n4_a_song_called_42901_is_no_refusal(case: RefusalCase) -> None:
    report = case.run(first(ValueError("no lyrics for song 42901"), 1000), jobs=2)
    assert [job.state for job in report.jobs] == [State.FAILED] * 2
    assert report.attempts == [1, 1]
    assert report.pool.closures == ()


def test_n4_half_past_four_in_china_is_a_setting(case: RefusalCase) -> None:
    body = {"error": {"code": "1304", "message": "今日调用次数已用完"}}
    report = case.run(
        first(ClientError(429, body), 5), resumes=TimeOfDay(16, 30, "Asia/Shanghai"), seconds=86_400.0
    )
    assert report.calls[5] == pytest.approx(8.5 * 3600, abs=15), "08:30 UTC"
