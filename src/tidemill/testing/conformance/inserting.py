"""insert, and the ids it remembers."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.contract import jobs
from tidemill.contract.jobs import MEMORY_OF_IDS, SHORT_MEMORY_OF_IDS
from tidemill.core.changes import Cancel, Delete
from tidemill.core.job import Group, NewJob
from tidemill.core.outcomes import Fail
from tidemill.core.queues import QueueSettings, Retention, Verdict
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.testing.conformance.driver import OOPS, Driver, ids, new

HOUR = 3600.0


class TestInsert:
    async def test_j10_answers_each_job_of_each_group_in_order(self, drive: Driver) -> None:
        groups = [Group("a", (new("1"), new("2"))), Group("b", (new("3"),)), Group("c", ())]
        answers = await drive.store.insert(groups)
        assert [[answer.id for answer in group] for group in answers] == [["1", "2"], ["3"], []]
        assert {answer.verdict for group in answers for answer in group} == {Verdict.ACCEPTED}

    async def test_j10_refuses_a_whole_group_and_no_other(self, drive: Driver) -> None:
        bad = Group("a", (new("1"), new("2", priority=10**9)))
        refused, accepted = await drive.store.insert([bad, Group("a", (new("3"),))])
        assert [answer.verdict for answer in refused] == [Verdict.INVALID] * 2
        assert [answer.verdict for answer in accepted] == [Verdict.ACCEPTED]
        assert await drive.store.get(["1", "2"]) == [None, None]

    @pytest.mark.parametrize(
        ("field", "job"),
        [
            ("id", NewJob(id="", task="t", payload=b"{}")),
            ("task", new("1", task="")),
            ("priority", new("1", priority=-40_000)),
            ("key", new("1", key="")),
            ("delay", new("1", delay=float("nan"))),
            ("expires", new("1", expires=-1.0)),
            ("timeout", new("1", timeout=float("inf"))),
            ("at", new("1", at=float("inf"))),
            ("unique.key", new("1", unique=Unique(""))),
            ("unique.period", new("1", unique=Unique("k", period=0.0))),
        ],
    )
    async def test_j13_names_the_field_that_is_wrong(self, drive: Driver, field: str, job: NewJob) -> None:
        answer = (await drive.add(job))[0]
        assert answer.verdict is Verdict.INVALID
        assert answer.problem is not None
        assert answer.problem.startswith(field)

    async def test_j13_a_refused_id_may_come_again(self, drive: Driver) -> None:
        await drive.add(new("1", priority=10**9))
        assert (await drive.add("1"))[0].verdict is Verdict.ACCEPTED

    async def test_j12_full_at_the_limit_and_not_before(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(max_length=3)})
        assert [a.verdict for a in await drive.add("1", "2", "3")] == [Verdict.ACCEPTED] * 3
        answers = await drive.add("4")
        assert (answers[0].verdict, bool(answers[0].problem)) == (Verdict.FULL, True)
        await drive.take(limit=1)
        assert (await drive.add("4"))[0].verdict is Verdict.ACCEPTED

    async def test_j12_a_group_that_does_not_fit_leaves_nothing(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(max_length=3)})
        assert [a.verdict for a in await drive.add("1", "2", "3", "4")] == [Verdict.FULL] * 4
        assert await drive.store.counts() == {}

    async def test_j12_groups_of_one_call_share_the_room(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(max_length=3)})
        groups = [Group("q", (new("1"), new("2"))), Group("q", (new("3"), new("4"))), Group("q", (new("5"),))]
        answers = await drive.store.insert(groups)
        expected = [Verdict.ACCEPTED, Verdict.FULL, Verdict.ACCEPTED]
        assert [group[0].verdict for group in answers] == expected

    async def test_j12_scheduled_and_waiting_jobs_count(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(max_length=2)})
        await drive.add(new("1", unique=Unique("k", "rerun")))
        await drive.take()
        await drive.add(new("2", unique=Unique("k", "rerun")), new("3", delay=60.0))
        assert (await drive.add("4"))[0].verdict is Verdict.FULL

    async def test_j12_a_known_id_is_no_new_job(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(max_length=2)})
        await drive.add("1", "2")
        assert [a.verdict for a in await drive.add("1", "2")] == [Verdict.ACCEPTED] * 2
        mixed = await drive.add("1", "3")
        assert [a.verdict for a in mixed] == [Verdict.ACCEPTED, Verdict.FULL]

    async def test_j15_keeps_what_was_sent(self, drive: Driver) -> None:
        now = drive.clock.wall()
        sent = new("1", priority=-3, key="k", expires=60.0, timeout=9.5, trace="00-ab", tags=("x", "y"))
        await drive.add(sent)
        job = await drive.job("1")
        assert (job.task, job.payload, job.queue) == (sent.task, sent.payload, "q")
        assert (job.priority, job.lane, job.expires, job.timeout) == (-3, "k", now + 60, 9.5)
        assert (job.trace, job.tags, job.created, job.due) == ("00-ab", ("x", "y"), now, now)
        assert (job.attempts, job.crashes, job.generation, job.claim) == (0, 0, 0, 0)

    async def test_j16_never_starts_before_its_time(self, drive: Driver) -> None:
        await drive.add(new("1", delay=10.0), new("2", at=drive.clock.wall() + 20), new("3", at=1.0))
        assert [await drive.state(job) for job in "123"] == [State.SCHEDULED, State.SCHEDULED, State.READY]
        assert ids(await drive.take()) == ["3"]
        drive.clock.advance(9.999)
        assert await drive.take() == []
        drive.clock.advance(0.001)
        assert ids(await drive.take()) == ["1"]
        drive.clock.advance(10.0)
        assert ids(await drive.take()) == ["2"]


class TestRememberedIds:
    async def test_j11_repeating_an_id_makes_no_second_job(self, drive: Driver) -> None:
        first = await drive.add("1")
        assert await drive.add(new("1", payload="other")) == first
        assert (await drive.job("1")).payload == new("1").payload
        assert await drive.store.counts() == {"q": {State.READY: 1}}

    async def test_j11_an_id_twice_in_a_group_is_one_job(self, drive: Driver) -> None:
        answers = await drive.add("1", "1", "2")
        assert [answer.verdict for answer in answers] == [Verdict.ACCEPTED] * 3
        assert await drive.store.counts() == {"q": {State.READY: 2}}

    async def test_j11_another_queue_does_not_matter(self, drive: Driver) -> None:
        await drive.add("1")
        assert (await drive.add("1", queue="other"))[0].verdict is Verdict.ACCEPTED
        assert await drive.store.counts() == {"q": {State.READY: 1}}

    async def test_j11_an_existing_verdict_is_remembered_too(self, drive: Driver) -> None:
        await drive.add(new("1", unique=Unique("k")))
        existing = await drive.add(new("2", unique=Unique("k")))
        assert [(a.verdict, a.id) for a in existing] == [(Verdict.EXISTING, "1")]
        await drive.settle(await drive.take_one())
        assert await drive.add(new("2", unique=Unique("k"))) == existing
        drive.clock.advance(MEMORY_OF_IDS)
        await drive.store.prune()
        assert (await drive.add(new("2", unique=Unique("k"))))[0].verdict is Verdict.ACCEPTED

    @pytest.mark.parametrize("how", ["pruned", "deleted"])
    async def test_j82_j73_known_for_an_hour_after_the_job_is_gone(self, drive: Driver, how: str) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(age=0.0))})
        await drive.ended("1")
        if how == "deleted":
            await drive.amend(Delete(), "1")
        await drive.store.prune()
        assert await drive.state("1") is None
        drive.clock.advance(MEMORY_OF_IDS - 0.001)
        await drive.store.prune()
        assert [(a.verdict, a.id) for a in await drive.add("1")] == [(Verdict.ACCEPTED, "1")]
        assert await drive.state("1") is None
        drive.clock.advance(0.001)
        await drive.store.prune()
        assert (await drive.add("1"))[0].verdict is Verdict.ACCEPTED
        assert await drive.state("1") is State.READY

    async def test_j82_beyond_a_number_the_oldest_ids_are_forgotten_sooner(
        self, drive: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs, "MOST_IDS", 2)
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(age=0.0))})
        for name in "abcd":
            await drive.ended(name)
            await drive.store.prune()
            drive.clock.advance(50.0)
        drive.clock.advance(SHORT_MEMORY_OF_IDS - 200.0)
        await drive.store.prune()
        await drive.add("a")
        assert await drive.state("a") is State.READY
        drive.clock.advance(HOUR / 2)
        await drive.store.prune()
        await drive.add("b", "c", "d")
        assert [await drive.state(name) for name in "bcd"] == [State.READY, None, None]

    @pytest.mark.parametrize("step", [HOUR, 24 * HOUR, -HOUR, -24 * HOUR])
    async def test_j82_a_stepped_clock_forgets_nothing_early(self, drive: Driver, step: float) -> None:
        await drive.add("1")
        await drive.amend(Delete(), "1")
        drive.clock.step_wall(step)
        drive.clock.advance(MEMORY_OF_IDS / 2)
        await drive.store.prune()
        await drive.add("1")
        assert await drive.state("1") is None

    async def test_j11_every_end_remembers(self, drive: Driver) -> None:
        keep = Retention(age=0.0)
        await drive.store.declare({"q": QueueSettings(keep_failed=keep, keep_cancelled=keep)})
        await drive.add("1", "2")
        first, _ = await drive.take()
        await drive.settle(first, Fail(OOPS))
        await drive.amend(Cancel(), "2")
        assert (await drive.store.prune()).pruned == 2
        await drive.add("1", "2")
        assert await drive.store.get(["1", "2"]) == [None, None]
