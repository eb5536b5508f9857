"""The reader: at rest, everything equals a recount."""

# ruff: noqa: S101 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from collections import Counter

from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES
from tidemill.core.changes import Archive, Cancel, Delete
from tidemill.core.claims import Said
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.outcomes import Crashed, Fail, Retrying, Snooze
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.testing.conformance.driver import LEASE, OOPS, Driver, holding, ids, new


async def everything(drive: Driver, wanted: Filter, limit: int = 2, looks: int | None = None) -> list[Job]:
    jobs: list[Job] = []
    page = await drive.store.find(wanted, limit, None, looks)
    jobs.extend(page.jobs)
    while page.cursor is not None:
        page = await drive.store.find(wanted, limit, page.cursor, looks)
        jobs.extend(page.jobs)
    return jobs


class TestFind:
    async def test_r1_one_answer_per_id_in_order(self, drive: Driver) -> None:
        await drive.add(*"ab")
        found = await drive.store.get(["b", "never", "a", "b"])
        assert [job and job.id for job in found] == ["b", None, "a", "b"]
        assert await drive.store.get([]) == []

    async def test_r2_newest_first_page_by_page(self, drive: Driver) -> None:
        await drive.add(*"abcde")
        assert ids(await everything(drive, Filter())) == list("edcba")
        page = await drive.store.find(Filter(), 5)
        assert (len(page.jobs), page.cursor) == (5, None)
        nothing = await drive.store.find(Filter(), 0)
        assert (nothing.jobs, nothing.cursor) == ((), None)

    async def test_r2_each_job_once_whatever_comes_meanwhile(self, drive: Driver) -> None:
        await drive.add(*"abcd")
        first = await drive.store.find(Filter(), 2)
        await drive.add("e")
        await drive.amend(Delete(), "b")
        rest = await drive.store.find(Filter(), 9, first.cursor)
        assert ids(first.jobs) + ids(rest.jobs) == ["d", "c", "a"]

    async def test_r2_every_field_narrows(self, drive: Driver) -> None:
        await drive.add("a", new("b", task="other", key="k", tags=("x", "y")))
        drive.clock.advance(10.0)
        await drive.add("c", queue="p")
        await drive.take(limit=1)
        now = drive.clock.wall()
        wanted = {
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
        found = {name: ids(await everything(drive, filter_)) for name, (filter_, _) in wanted.items()}
        assert found == {name: expected for name, (_, expected) in wanted.items()}


class TestCounts:
    async def test_r3_i9_i28_equal_a_recount_through_every_verb(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_cancelled=Retention(count=0))})
        await drive.add(*"abcdef", new("g", delay=9.0), new("h", expires=1.0))
        await drive.add("z", queue="p")
        await self.recount(drive)
        jobs = await drive.take(limit=5)
        await self.recount(drive)
        for job, outcome in zip(jobs, (Retrying(1.0, OOPS), Fail(OOPS), Snooze(0.0), None), strict=False):
            await drive.settle(job, outcome)
            await self.recount(drive)
        await drive.store.reclaim(["w"])
        await drive.amend(Cancel(), "f")
        drive.clock.advance(20.0)
        await drive.take("x", limit=1)
        await self.recount(drive)
        await drive.store.prune()
        await drive.amend(Delete(), "z")
        await self.recount(drive)

    async def recount(self, drive: Driver) -> None:
        jobs = await everything(drive, Filter(), 50)
        recounted = Counter((job.queue, job.state) for job in jobs)
        counts = await drive.store.counts()
        shown = {(queue, state): n for queue, states in counts.items() for state, n in states.items()}
        assert shown == recounted


class TestHistory:
    async def test_r4_per_minute_and_queue(self, drive: Driver) -> None:
        drive.clock.advance(60 - drive.clock.wall() % 60)
        start = drive.clock.wall()
        await drive.ended("a", "b")
        await drive.add("c")
        await drive.settle(await drive.take_one(), Retrying(0.0, OOPS))
        drive.clock.advance(120.0)
        await drive.settle(await drive.take_one(), Fail(OOPS))
        await drive.add("d")
        await drive.amend(Cancel(), "d")
        await drive.ended("z", queue="p")
        await drive.add("e", "f")
        await drive.take("x", limit=2)
        await drive.store.reclaim(["x"])
        rows = [
            (m.at - start, m.done, m.failed, m.cancelled, m.retried, m.reclaimed)
            for m in await drive.store.history("q", start)
        ]
        assert rows == [(0.0, 2, 0, 0, 1, 0), (120.0, 0, 1, 1, 0, 2)]
        assert [minute.at for minute in await drive.store.history("q", start + 121)] == [start + 120]
        assert await drive.store.history("never", 0.0) == []

    async def test_r4_what_a_person_archives_was_not_done(self, drive: Driver) -> None:
        await drive.add("a", new("b", delay=9.0))
        await drive.amend(Archive(), "a", "b")
        assert await drive.store.history("q", 0.0) == []

    async def test_r4_survives_pruning(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(count=0))})
        await drive.ended("a")
        await drive.store.prune()
        assert [minute.done for minute in await drive.store.history("q", 0.0)] == [1]


class TestLogs:
    async def test_r5_lines_of_each_attempt_oldest_first(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        await drive.beat(holding(job, log=(Said("one", 0.5), Said("two"))))
        await drive.settle(job, Retrying(0.0, OOPS))
        drive.clock.advance(1.0)
        again = await drive.take_one()
        await drive.beat(holding(again, log=(Said("three"),)))
        lines = [(line.attempt, line.line, line.at) for line in await drive.store.logs("a")]
        now = drive.clock.wall()
        assert lines == [(1, "one", now - 1.5), (1, "two", now - 1), (2, "three", now)]

    async def test_r5_the_last_lines_stay(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        for start in range(0, LOG_LINES + 50, 50):
            await drive.beat(holding(job, log=tuple(Said(str(start + n)) for n in range(50))))
        kept = [line.line for line in await drive.store.logs("a")]
        assert kept == [str(n) for n in range(50, LOG_LINES + 50)]
        assert await drive.store.logs("never") == []


class TestAttempts:
    async def test_r6_how_unsuccessful_attempts_ended(self, drive: Driver) -> None:
        await drive.add("a")
        start = drive.clock.wall()
        job = await drive.take_one()
        drive.clock.advance(2.0)
        await drive.settle(job, Retrying(0.0, OOPS))
        await drive.settle(await drive.take_one(), Crashed(OOPS))
        await drive.take_one()
        await drive.store.reclaim(["w"])
        records = await drive.store.attempts("a")
        assert [(r.outcome, r.attempt, r.worker) for r in records] == [
            ("retry", 1, "w"),
            ("crashed", 2, "w"),
            ("reclaimed", 2, "w"),
        ]
        first = records[0]
        assert (first.started, first.ended, first.error) == (start, start + 2, OOPS)
        assert records[2].error is not None

    async def test_r6_failures_are_there_and_successes_not(self, drive: Driver) -> None:
        await drive.ended("a")
        await drive.add("b")
        await drive.settle(await drive.take_one(), Fail(OOPS))
        assert await drive.store.attempts("a") == []
        assert [record.outcome for record in await drive.store.attempts("b")] == ["fail"]

    async def test_r6_the_last_ones_stay(self, drive: Driver) -> None:
        await drive.add("a")
        for _ in range(ATTEMPTS_KEPT + 3):
            await drive.settle(await drive.take_one(), Retrying(0.0, OOPS))
        kept = [record.attempt for record in await drive.store.attempts("a")]
        assert kept == list(range(4, ATTEMPTS_KEPT + 4))


class TestWorkers:
    async def test_r7_j53_known_while_the_lease_runs(self, drive: Driver) -> None:
        await drive.add(*"abc")
        jobs = await drive.take(limit=2)
        await drive.beat(*jobs)
        (worker,) = await drive.store.workers()
        assert (worker.id, worker.host, worker.pid, worker.holds) == ("w", "host", 7, 2)
        assert worker.seen == drive.clock.wall()
        await drive.settle(jobs[0])
        assert (await drive.store.workers())[0].holds == 1
        drive.clock.advance(LEASE)
        assert await drive.store.workers() == []

    async def test_r7_a_dead_worker_is_not_shown(self, drive: Driver) -> None:
        await drive.beat(worker="w")
        await drive.beat(worker="x")
        await drive.store.reclaim(["w"])
        assert [worker.id for worker in await drive.store.workers()] == ["x"]
