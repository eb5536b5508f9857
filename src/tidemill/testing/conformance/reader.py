"""Conformance tests for the read methods of a store: find, counts, history, logs, attempts and workers."""

from __future__ import annotations

from collections import Counter

import pytest

from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES_PER_ATTEMPT, JobPage
from tidemill.core.claims import LogEntry
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.operator_changes import ArchiveJobs, CancelJobs, DeleteJobs
from tidemill.core.outcomes import Crash, FinalFailure, RetryLater, Snooze
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.testing.conformance.fixtures import (
    LEASE_SECONDS,
    SAMPLE_ERROR,
    StoreDriver,
    held_job,
    ids,
    new_job,
)


async def find_everything(
    driver: StoreDriver, job_filter: Filter, limit: int = 2, scan_limit: int | None = None
) -> list[Job]:
    jobs: list[Job] = []
    page = await driver.store.find(job_filter, limit, None, scan_limit)
    jobs.extend(page.jobs)
    while page.cursor is not None:
        page = await driver.store.find(job_filter, limit, page.cursor, scan_limit)
        jobs.extend(page.jobs)
    return jobs


class TestFind:
    async def test_r1_one_answer_per_id_in_order(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        found = await driver.store.get(["b", "never", "a", "b"])
        assert [job and job.id for job in found] == ["b", None, "a", "b"]
        assert await driver.store.get([]) == []

    async def test_r2_newest_first_page_by_page(self, driver: StoreDriver) -> None:
        await driver.add(*"abcde")
        assert ids(await find_everything(driver, Filter())) == list("edcba")
        page = await driver.store.find(Filter(), 5)
        assert (len(page.jobs), page.cursor) == (5, None)
        nothing = await driver.store.find(Filter(), 0)
        assert (nothing.jobs, nothing.cursor) == ((), None)

    async def test_r2_each_job_appears_once_while_jobs_are_inserted(self, driver: StoreDriver) -> None:
        await driver.add(*"abcd")
        first = await driver.store.find(Filter(), 2)
        await driver.add("e")
        await driver.amend(DeleteJobs(), "b")
        rest = await driver.store.find(Filter(), 9, first.cursor)
        assert ids(first.jobs) + ids(rest.jobs) == ["d", "c", "a"]

    async def test_r2_every_field_narrows(self, driver: StoreDriver) -> None:
        await driver.add("a", new_job("b", task="other", key="k", tags=("x", "y")))
        driver.clock.advance(10.0)
        await driver.add("c", queue="p")
        await driver.take(limit=1)
        now = driver.clock.wall()
        cases = {
            "queue": (Filter(queue="p"), ["c"]),
            "states": (Filter(states=(State.RUNNING, State.DONE)), ["a"]),
            "task": (Filter(task="other"), ["b"]),
            "key": (Filter(key="k"), ["b"]),
            "tag": (Filter(tag="y"), ["b"]),
            "since": (Filter(since=now), ["c"]),
            "until": (Filter(until=now), ["b", "a"]),
            "ids": (Filter(ids=("a", "c", "never")), ["c", "a"]),
            "no ids": (Filter(ids=()), []),
            "no states": (Filter(states=()), []),
            "two fields": (Filter(queue="q", task="task"), ["a"]),
        }
        found = {name: ids(await find_everything(driver, filter_)) for name, (filter_, _) in cases.items()}
        assert found == {name: expected for name, (_, expected) in cases.items()}


class TestCounts:
    async def test_r3_i9_i28_equal_a_recount_through_every_verb(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_cancelled=Retention(count=0))})
        await driver.add(*"abcdef", new_job("g", delay=9.0), new_job("h", expires=1.0))
        await driver.add("z", queue="p")
        await self.recount(driver)
        jobs = await driver.take(limit=5)
        await self.recount(driver)
        for job, outcome in zip(
            jobs, (RetryLater(1.0, SAMPLE_ERROR), FinalFailure(SAMPLE_ERROR), Snooze(0.0), None), strict=False
        ):
            await driver.settle(job, outcome)
            await self.recount(driver)
        await driver.store.reclaim(["w"])
        await driver.amend(CancelJobs(), "f")
        driver.clock.advance(20.0)
        await driver.take("x", limit=1)
        await self.recount(driver)
        await driver.store.prune()
        await driver.amend(DeleteJobs(), "z")
        await self.recount(driver)

    async def recount(self, driver: StoreDriver) -> None:
        jobs = await find_everything(driver, Filter(), 50)
        recounted = Counter((job.queue, job.state) for job in jobs)
        counts = await driver.store.counts()
        shown = {(queue, state): n for queue, states in counts.items() for state, n in states.items()}
        assert shown == recounted


class TestQueueHistory:
    async def test_r4_per_minute_and_queue(self, driver: StoreDriver) -> None:
        driver.clock.advance(60 - driver.clock.wall() % 60)
        start = driver.clock.wall()
        await driver.ended("a", "b")
        await driver.add("c")
        await driver.settle(await driver.take_one(), RetryLater(0.0, SAMPLE_ERROR))
        driver.clock.advance(120.0)
        await driver.settle(await driver.take_one(), FinalFailure(SAMPLE_ERROR))
        await driver.add("d")
        await driver.amend(CancelJobs(), "d")
        await driver.ended("z", queue="p")
        await driver.add("e", "f")
        await driver.take("x", limit=2)
        await driver.store.reclaim(["x"])
        rows = [
            (m.at - start, m.done, m.failed, m.cancelled, m.retried, m.reclaimed)
            for m in await driver.store.history("q", start)
        ]
        assert rows == [(0.0, 2, 0, 0, 1, 0), (120.0, 0, 1, 1, 0, 2)]
        assert [minute.at for minute in await driver.store.history("q", start + 121)] == [start + 120]
        assert await driver.store.history("never", 0.0) == []

    async def test_r4_an_archived_job_does_not_count_as_done(self, driver: StoreDriver) -> None:
        await driver.add("a", new_job("b", delay=9.0))
        await driver.amend(ArchiveJobs(), "a", "b")
        assert await driver.store.history("q", 0.0) == []

    async def test_r4_survives_pruning(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(count=0))})
        await driver.ended("a")
        await driver.store.prune()
        assert [minute.done for minute in await driver.store.history("q", 0.0)] == [1]


class TestLogs:
    async def test_r5_lines_of_each_attempt_oldest_first(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        await driver.beat(held_job(job, log=(LogEntry("one", 0.5), LogEntry("two"))))
        await driver.settle(job, RetryLater(0.0, SAMPLE_ERROR))
        driver.clock.advance(1.0)
        second = await driver.take_one()
        await driver.beat(held_job(second, log=(LogEntry("three"),)))
        lines = [(line.attempt, line.line, line.at) for line in await driver.store.logs("a")]
        now = driver.clock.wall()
        assert lines == [(1, "one", now - 1.5), (1, "two", now - 1), (2, "three", now)]

    async def test_r5_the_last_lines_stay(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        for start in range(0, LOG_LINES_PER_ATTEMPT + 50, 50):
            await driver.beat(held_job(job, log=tuple(LogEntry(str(start + n)) for n in range(50))))
        lines = [line.line for line in await driver.store.logs("a")]
        assert lines == [str(n) for n in range(50, LOG_LINES_PER_ATTEMPT + 50)]
        assert await driver.store.logs("never") == []


class TestAttempts:
    async def test_r6_how_unsuccessful_attempts_ended(self, driver: StoreDriver) -> None:
        await driver.add("a")
        start = driver.clock.wall()
        job = await driver.take_one()
        driver.clock.advance(2.0)
        await driver.settle(job, RetryLater(0.0, SAMPLE_ERROR))
        await driver.settle(await driver.take_one(), Crash(SAMPLE_ERROR))
        await driver.take_one()
        await driver.store.reclaim(["w"])
        records = await driver.store.attempts("a")
        assert [(r.outcome, r.attempt, r.worker) for r in records] == [
            ("retry", 1, "w"),
            ("crashed", 2, "w"),
            ("reclaimed", 2, "w"),
        ]
        first = records[0]
        assert (first.started, first.ended, first.error) == (start, start + 2, SAMPLE_ERROR)
        assert records[2].error is not None

    async def test_r6_only_failed_attempts_are_stored(self, driver: StoreDriver) -> None:
        await driver.ended("a")
        await driver.add("b")
        await driver.settle(await driver.take_one(), FinalFailure(SAMPLE_ERROR))
        assert await driver.store.attempts("a") == []
        assert [record.outcome for record in await driver.store.attempts("b")] == ["fail"]

    async def test_r6_the_last_ones_stay(self, driver: StoreDriver) -> None:
        await driver.add("a")
        for _ in range(ATTEMPTS_KEPT + 3):
            await driver.settle(await driver.take_one(), RetryLater(0.0, SAMPLE_ERROR))
        attempts = [record.attempt for record in await driver.store.attempts("a")]
        assert attempts == list(range(4, ATTEMPTS_KEPT + 4))


class TestWorkers:
    async def test_r7_j53_known_while_the_lease_runs(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        jobs = await driver.take(limit=2)
        await driver.beat(*jobs)
        (worker,) = await driver.store.workers()
        assert (worker.id, worker.host, worker.pid, worker.holds) == ("w", "host", 7, 2)
        assert worker.seen == driver.clock.wall()
        await driver.settle(jobs[0])
        assert (await driver.store.workers())[0].holds == 1
        driver.clock.advance(LEASE_SECONDS)
        assert await driver.store.workers() == []

    async def test_r7_a_dead_worker_is_not_shown(self, driver: StoreDriver) -> None:
        await driver.beat(worker="w")
        await driver.beat(worker="x")
        await driver.store.reclaim(["w"])
        assert [worker.id for worker in await driver.store.workers()] == ["x"]


JOB_COUNT, SCAN_LIMIT = 24, 5


async def find_all_pages(
    driver: StoreDriver, job_filter: Filter, limit: int, scan_limit: int
) -> list[JobPage]:
    found = [await driver.store.find(job_filter, limit, None, scan_limit)]
    while (cursor := found[-1].cursor) is not None:
        found.append(await driver.store.find(job_filter, limit, cursor, scan_limit))
        assert found[-1].cursor is None or found[-1].cursor < cursor, "every page gets further"
    return found


async def insert_every_state(driver: StoreDriver) -> None:
    for number in range(JOB_COUNT):
        payload = {"host": f"h{number % 3}", "said": "Oak" if number in {0, 13} else "elm"}
        job = new_job(
            f"{'ab'[number % 2]}{number:02}",
            payload=payload,
            task=f"t{number % 4}",
            key="k" if number % 5 == 0 else None,
            tags=("x",) if number % 6 == 0 else (),
            delay=60.0 if number % 8 == 0 else 0.0,
        )
        await driver.add(job, queue="pq"[number % 2])
        driver.clock.advance(1.0)
    await driver.ended(*(f"z{number}" for number in range(4)))
    await driver.amend(ArchiveJobs(), "a04", "a12", "b17")
    await driver.take(limit=3, shares=(("p", 3),))


class TestScanLimit:
    async def test_r11_a_page_ends_at_the_scan_limit(self, driver: StoreDriver) -> None:
        await driver.add(*(new_job(f"{n:02}", payload="oak" if n == 0 else "elm") for n in range(JOB_COUNT)))
        found = await find_all_pages(driver, Filter(text="oak"), 10, SCAN_LIMIT)
        assert [ids(page.jobs) for page in found] == [[], [], [], [], ["00"]]
        assert [page.partial for page in found] == [True, True, True, True, False]

    async def test_r11_a_full_page_is_not_partial(self, driver: StoreDriver) -> None:
        await driver.add(*(f"{n:02}" for n in range(JOB_COUNT)))
        page = await driver.store.find(Filter(), 3, None, SCAN_LIMIT)
        assert (ids(page.jobs), page.partial) == (["23", "22", "21"], False)
        assert page.cursor is not None

    async def test_r11_a_complete_scan_is_not_partial(self, driver: StoreDriver) -> None:
        await driver.add(*(f"{n:02}" for n in range(JOB_COUNT)))
        assert await driver.store.find(Filter(text="oak"), 3, None, JOB_COUNT) == JobPage((), None)
        assert len((await driver.store.find(Filter(), JOB_COUNT, None, JOB_COUNT)).jobs) == JOB_COUNT
        assert await driver.store.find(Filter(queue="nobody"), 3, None, SCAN_LIMIT) == JobPage((), None)

    async def test_r11_ids_are_read_without_a_scan_limit(self, driver: StoreDriver) -> None:
        names = tuple(f"{n:02}" for n in range(JOB_COUNT))
        await driver.add(*names)
        page = await driver.store.find(Filter(ids=names), JOB_COUNT, None, SCAN_LIMIT)
        assert (ids(page.jobs), page.cursor) == (list(names[::-1]), None)

    @pytest.mark.parametrize(
        "job_filter",
        [
            Filter(),
            *(Filter(states=(state,)) for state in State),
            Filter(states=(State.DONE, State.FAILED, State.RUNNING)),
            Filter(queue="p"),
            Filter(queue="q", states=(State.READY,)),
            Filter(task="t1"),
            Filter(key="k", queue="p"),
            Filter(tag="x", states=(State.READY, State.FAILED)),
            Filter(text="OAK"),
            Filter(text="oak", states=(State.READY,)),
            Filter(fields=(("host", "h1"),)),
            Filter(fields=(("host", "h1"),), states=(State.FAILED,)),
            Filter(id_prefix="a"),
            Filter(id_prefix="a1", states=(State.FAILED,)),
            Filter(time="finished", since=0.0),
            Filter(time="finished", until=0.0),
            Filter(time="due", states=(State.SCHEDULED,), since=0.0),
            Filter(states=()),
        ],
        ids=str,
    )
    async def test_r11_pages_return_the_same_jobs_as_one_search(
        self, driver: StoreDriver, job_filter: Filter
    ) -> None:
        await insert_every_state(driver)
        all_ids = ids(await find_everything(driver, job_filter, 100))
        for limit, scan_limit in ((100, SCAN_LIMIT), (2, SCAN_LIMIT), (2, 1), (3, 1000)):
            met = [
                name
                for page in await find_all_pages(driver, job_filter, limit, scan_limit)
                for name in ids(page.jobs)
            ]
            assert met == all_ids
