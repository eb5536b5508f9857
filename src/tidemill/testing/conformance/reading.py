"""The reader: at rest, everything equals a recount."""

# ruff: noqa: S101 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from collections import Counter

from tidemill.contract.reader import AHEAD_COUNTED, ATTEMPTS_KEPT, LOG_LINES, Backlog
from tidemill.core.changes import Cancel, Delete
from tidemill.core.claims import Said
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.outcomes import Crashed, Fail, Outcome, Retrying, Snooze
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.testing.conformance.driver import LEASE, OOPS, Driver, holding, ids, new


async def everything(drive: Driver, wanted: Filter, limit: int = 2) -> list[Job]:
    jobs: list[Job] = []
    page = await drive.store.find(wanted, limit)
    jobs.extend(page.jobs)
    while page.cursor is not None:
        page = await drive.store.find(wanted, limit, page.cursor)
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


EMPTY = Backlog(oldest_ready=None, next_due=None, retrying=0, last_ended=None)


class TestBacklog:
    async def test_r8_a_queue_nobody_knows_has_an_empty_one(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings()})
        assert await drive.store.backlog("never") == await drive.store.backlog("q") == EMPTY

    async def test_r8_the_oldest_ready_in_any_lane_and_priority(self, drive: Driver) -> None:
        start = drive.clock.wall()
        lanes = (None, "k", "l")
        for seconds, (key, priority) in enumerate((key, priority) for key in lanes for priority in (9, 5, 1)):
            drive.clock.advance(1.0)
            await drive.add(new(f"{seconds}", key=key, priority=priority), new(f"{seconds}+", key=key))
        await drive.add("other", queue="p")
        for seconds in range(9):
            assert (await drive.store.backlog("q")).oldest_ready == start + seconds + 1
            await drive.amend(Cancel(), f"{seconds}", f"{seconds}+")
        assert (await drive.store.backlog("q")).oldest_ready is None

    async def test_r8_a_job_could_start_since_it_was_due(self, drive: Driver) -> None:
        start = drive.clock.wall()
        await drive.add(new("a", delay=5.0))
        assert (await drive.store.backlog("q")).next_due == start + 5
        drive.clock.advance(60.0)
        late = await drive.store.backlog("q")
        assert (late.oldest_ready, late.next_due) == (None, start + 5)
        await drive.take(limit=0)
        promoted = await drive.store.backlog("q")
        assert (promoted.oldest_ready, promoted.next_due) == (start + 5, None)

    async def test_r8_retrying_are_those_that_have_run(self, drive: Driver) -> None:
        await drive.add("a", "b", "c", new("later", delay=9.0))
        outcomes: tuple[Outcome, ...] = (Retrying(9.0, OOPS), Retrying(0.0, OOPS), Snooze(9.0))
        for job, outcome in zip(await drive.take(), outcomes, strict=True):
            await drive.settle(job, outcome)
        assert (await drive.store.backlog("q")).retrying == 1
        await drive.amend(Cancel(), "a")
        assert (await drive.store.backlog("q")).retrying == 0

    async def test_r8_the_last_end_is_known_after_pruning(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(count=0))})
        await drive.ended("a")
        ended = drive.clock.wall()
        drive.clock.advance(200.0)
        await drive.add("b")
        await drive.settle(await drive.take_one(), Retrying(0.0, OOPS))
        assert (await drive.store.backlog("q")).last_ended == ended
        await drive.store.prune()
        assert (await drive.store.backlog("q")).last_ended == ended // 60 * 60
        await drive.amend(Cancel(), "b")
        assert (await drive.store.backlog("q")).last_ended == drive.clock.wall()


class TestAhead:
    async def test_r9_by_the_order_of_the_lane(self, drive: Driver) -> None:
        await drive.add(*"ab", new("urgent", priority=1), new("elsewhere", key="k"), new("late", priority=9))
        await drive.add("p", queue="p")
        ahead = {
            name: await drive.store.ahead(name) for name in ("urgent", "a", "b", "late", "elsewhere", "p")
        }
        assert ahead == {"urgent": 0, "a": 1, "b": 2, "late": 3, "elsewhere": 0, "p": 0}
        await drive.take(limit=3)
        assert [await drive.store.ahead(name) for name in ("urgent", "b", "late")] == [None, 0, 1]

    async def test_r9_none_for_what_is_not_ready(self, drive: Driver) -> None:
        await drive.add(new("later", delay=9.0))
        await drive.ended("done")
        assert [await drive.store.ahead(name) for name in ("later", "done", "never")] == [None] * 3

    async def test_r9_counted_so_far_and_no_further(self, drive: Driver) -> None:
        await drive.add(*[new(f"{n}") for n in range(AHEAD_COUNTED + 2)])
        assert await drive.store.ahead(f"{AHEAD_COUNTED - 1}") == AHEAD_COUNTED - 1
        assert await drive.store.ahead(f"{AHEAD_COUNTED + 1}") == AHEAD_COUNTED
