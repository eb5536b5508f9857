"""Conformance tests for insert and for the ids that a store remembers."""

from __future__ import annotations

import pytest

from tidemill.contract.jobs import KNOWN_ID_SECONDS
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs, DeleteJobs
from tidemill.core.outcomes import FinalFailure
from tidemill.core.queues import InsertVerdict, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, ids, new_job

HOUR_SECONDS = 3600.0


class TestInsert:
    async def test_j10_answers_each_job_of_each_group_in_order(self, driver: StoreDriver) -> None:
        groups = [
            JobGroup("a", (new_job("1"), new_job("2"))),
            JobGroup("b", (new_job("3"),)),
            JobGroup("c", ()),
        ]
        answers = await driver.store.insert(groups)
        assert [[answer.id for answer in group] for group in answers] == [["1", "2"], ["3"], []]
        assert {answer.verdict for group in answers for answer in group} == {InsertVerdict.ACCEPTED}

    async def test_j10_refuses_a_whole_group_and_no_other(self, driver: StoreDriver) -> None:
        bad = JobGroup("a", (new_job("1"), new_job("2", priority=10**9)))
        refused, accepted = await driver.store.insert([bad, JobGroup("a", (new_job("3"),))])
        assert [answer.verdict for answer in refused] == [InsertVerdict.INVALID] * 2
        assert [answer.verdict for answer in accepted] == [InsertVerdict.ACCEPTED]
        assert await driver.store.get(["1", "2"]) == [None, None]

    @pytest.mark.parametrize(
        ("field", "job"),
        [
            ("id", NewJob(id="", task="t", payload=b"{}")),
            ("task", new_job("1", task="")),
            ("priority", new_job("1", priority=-40_000)),
            ("key", new_job("1", key="")),
            ("delay", new_job("1", delay=float("nan"))),
            ("expires", new_job("1", expires=-1.0)),
            ("timeout", new_job("1", timeout=float("inf"))),
            ("at", new_job("1", at=float("inf"))),
            ("unique.key", new_job("1", unique=Unique(""))),
            ("unique.period", new_job("1", unique=Unique("k", period=0.0))),
        ],
    )
    async def test_j13_names_the_field_that_is_wrong(
        self, driver: StoreDriver, field: str, job: NewJob
    ) -> None:
        answer = (await driver.add(job))[0]
        assert answer.verdict is InsertVerdict.INVALID
        assert answer.problem is not None
        assert answer.problem.startswith(field)

    async def test_j13_a_refused_id_may_come_again(self, driver: StoreDriver) -> None:
        await driver.add(new_job("1", priority=10**9))
        assert (await driver.add("1"))[0].verdict is InsertVerdict.ACCEPTED

    async def test_j12_full_at_the_limit_and_not_before(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(max_length=3)})
        assert [a.verdict for a in await driver.add("1", "2", "3")] == [InsertVerdict.ACCEPTED] * 3
        answers = await driver.add("4")
        assert (answers[0].verdict, bool(answers[0].problem)) == (InsertVerdict.FULL, True)
        await driver.take(limit=1)
        assert (await driver.add("4"))[0].verdict is InsertVerdict.ACCEPTED

    async def test_j12_a_group_that_does_not_fit_leaves_nothing(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(max_length=3)})
        assert [a.verdict for a in await driver.add("1", "2", "3", "4")] == [InsertVerdict.FULL] * 4
        assert await driver.store.counts() == {}

    async def test_j12_groups_of_one_call_share_the_capacity(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(max_length=3)})
        groups = [
            JobGroup("q", (new_job("1"), new_job("2"))),
            JobGroup("q", (new_job("3"), new_job("4"))),
            JobGroup("q", (new_job("5"),)),
        ]
        answers = await driver.store.insert(groups)
        expected = [InsertVerdict.ACCEPTED, InsertVerdict.FULL, InsertVerdict.ACCEPTED]
        assert [group[0].verdict for group in answers] == expected

    async def test_j12_scheduled_and_waiting_jobs_count(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(max_length=2)})
        await driver.add(new_job("1", unique=Unique("k", "rerun")))
        await driver.take()
        await driver.add(new_job("2", unique=Unique("k", "rerun")), new_job("3", delay=60.0))
        assert (await driver.add("4"))[0].verdict is InsertVerdict.FULL

    async def test_j12_a_known_id_is_no_new_job(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(max_length=2)})
        await driver.add("1", "2")
        assert [a.verdict for a in await driver.add("1", "2")] == [InsertVerdict.ACCEPTED] * 2
        mixed = await driver.add("1", "3")
        assert [a.verdict for a in mixed] == [InsertVerdict.ACCEPTED, InsertVerdict.FULL]

    async def test_j15_the_payload_is_stored_unchanged(self, driver: StoreDriver) -> None:
        now = driver.clock.wall()
        sent = new_job("1", priority=-3, key="k", expires=60.0, timeout=9.5, trace="00-ab", tags=("x", "y"))
        await driver.add(sent)
        job = await driver.job("1")
        assert (job.task, job.payload, job.queue) == (sent.task, sent.payload, "q")
        assert (job.priority, job.lane, job.expires, job.timeout) == (-3, "k", now + 60, 9.5)
        assert (job.trace, job.tags, job.created, job.due) == ("00-ab", ("x", "y"), now, now)
        assert (job.attempts, job.crashes, job.generation, job.claim) == (0, 0, 0, 0)

    async def test_j16_never_starts_before_its_time(self, driver: StoreDriver) -> None:
        await driver.add(
            new_job("1", delay=10.0), new_job("2", at=driver.clock.wall() + 20), new_job("3", at=1.0)
        )
        assert [await driver.state(job) for job in "123"] == [State.SCHEDULED, State.SCHEDULED, State.READY]
        assert ids(await driver.take()) == ["3"]
        driver.clock.advance(9.999)
        assert await driver.take() == []
        driver.clock.advance(0.001)
        assert ids(await driver.take()) == ["1"]
        driver.clock.advance(10.0)
        assert ids(await driver.take()) == ["2"]


class TestKnownIds:
    async def test_j11_repeating_an_id_makes_no_second_job(self, driver: StoreDriver) -> None:
        first = await driver.add("1")
        assert await driver.add(new_job("1", payload="other")) == first
        assert (await driver.job("1")).payload == new_job("1").payload
        assert await driver.store.counts() == {"q": {State.READY: 1}}

    async def test_j11_an_id_twice_in_a_group_is_one_job(self, driver: StoreDriver) -> None:
        answers = await driver.add("1", "1", "2")
        assert [answer.verdict for answer in answers] == [InsertVerdict.ACCEPTED] * 3
        assert await driver.store.counts() == {"q": {State.READY: 2}}

    async def test_j11_another_queue_does_not_matter(self, driver: StoreDriver) -> None:
        await driver.add("1")
        assert (await driver.add("1", queue="other"))[0].verdict is InsertVerdict.ACCEPTED
        assert await driver.store.counts() == {"q": {State.READY: 1}}

    async def test_j11_an_existing_verdict_is_remembered_too(self, driver: StoreDriver) -> None:
        await driver.add(new_job("1", unique=Unique("k")))
        existing = await driver.add(new_job("2", unique=Unique("k")))
        assert [(a.verdict, a.id) for a in existing] == [(InsertVerdict.EXISTING, "1")]
        await driver.settle(await driver.take_one())
        assert await driver.add(new_job("2", unique=Unique("k"))) == existing
        driver.clock.advance(KNOWN_ID_SECONDS)
        await driver.store.prune()
        assert (await driver.add(new_job("2", unique=Unique("k"))))[0].verdict is InsertVerdict.ACCEPTED

    @pytest.mark.parametrize("how", ["pruned", "deleted"])
    async def test_j82_j73_known_for_an_hour_after_the_job_is_gone(
        self, driver: StoreDriver, how: str
    ) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(age=0.0))})
        await driver.ended("1")
        if how == "deleted":
            await driver.amend(DeleteJobs(), "1")
        await driver.store.prune()
        assert await driver.state("1") is None
        driver.clock.advance(KNOWN_ID_SECONDS - 0.001)
        await driver.store.prune()
        assert [(a.verdict, a.id) for a in await driver.add("1")] == [(InsertVerdict.ACCEPTED, "1")]
        assert await driver.state("1") is None
        driver.clock.advance(0.001)
        await driver.store.prune()
        assert (await driver.add("1"))[0].verdict is InsertVerdict.ACCEPTED
        assert await driver.state("1") is State.READY

    @pytest.mark.parametrize("step", [HOUR_SECONDS, 24 * HOUR_SECONDS, -HOUR_SECONDS, -24 * HOUR_SECONDS])
    async def test_j82_a_clock_step_forgets_no_id_early(self, driver: StoreDriver, step: float) -> None:
        await driver.add("1")
        await driver.amend(DeleteJobs(), "1")
        driver.clock.step_wall(step)
        driver.clock.advance(KNOWN_ID_SECONDS / 2)
        await driver.store.prune()
        await driver.add("1")
        assert await driver.state("1") is None

    async def test_j82_the_first_ids_by_time_and_name_are_forgotten_first(self, driver: StoreDriver) -> None:
        await driver.add(*"cabd")
        await driver.amend(DeleteJobs(), *"cab")
        driver.clock.advance(1)
        await driver.amend(DeleteJobs(), "d")
        driver.clock.advance(KNOWN_ID_SECONDS)
        await driver.store.prune(2)
        driver.clock.step_wall(-HOUR_SECONDS)
        await driver.add(*"abcd")
        assert [job and job.id for job in await driver.store.get([*"abcd"])] == ["a", "b", None, None]

    async def test_j11_ids_stay_known_after_every_end(self, driver: StoreDriver) -> None:
        keep = Retention(age=0.0)
        await driver.store.declare({"q": QueueSettings(keep_failed=keep, keep_cancelled=keep)})
        await driver.add("1", "2")
        first, _ = await driver.take()
        await driver.settle(first, FinalFailure(SAMPLE_ERROR))
        await driver.amend(CancelJobs(), "2")
        assert (await driver.store.prune()).pruned == 2
        await driver.add("1", "2")
        assert await driver.store.get(["1", "2"]) == [None, None]
