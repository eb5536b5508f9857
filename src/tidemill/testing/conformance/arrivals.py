"""Conformance tests for arrivals, rows that other programs write into the store, and for `admit`."""

from __future__ import annotations

from tidemill.contract.jobs import Admission, RejectedArrival
from tidemill.core.jobs import NewJob
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, Arrive, StoreDriver, ids, new_job


async def admit_oldest(driver: StoreDriver, *verdicts: NewJob | RejectedArrival) -> int:
    """Admits the oldest arrivals, one for each of `verdicts`, and returns how many were admitted. A verdict
    is the job that the arrival becomes, or the rejection of the arrival."""
    waiting = await driver.store.arrivals(len(verdicts))
    pairs = zip(waiting, verdicts, strict=True)
    return await driver.store.admit([Admission(arrival, "q", verdict) for arrival, verdict in pairs])


class TestAdmit:
    async def test_arrivals_are_listed_oldest_first(self, driver: StoreDriver, arrive: Arrive) -> None:
        for name in "abc":
            await arrive(driver.store, name, "task", b'{"n":1}', b'{"priority":2}')
        listed = await driver.store.arrivals(2)
        assert [arrival.id for arrival in listed] == ["a", "b"]
        assert (listed[0].task, listed[0].payload, listed[0].options) == (
            "task",
            b'{"n":1}',
            b'{"priority":2}',
        )
        assert await driver.store.counts() == {}

    async def test_j20_an_arrival_becomes_a_job_and_is_deleted(
        self, driver: StoreDriver, arrive: Arrive
    ) -> None:
        await arrive(driver.store, "a", "task", b"{}", b"{}")
        assert await admit_oldest(driver, new_job("a", priority=2)) == 1
        assert await driver.store.arrivals(9) == []
        assert (await driver.job("a")).priority == 2
        assert ids(await driver.take()) == ["a"]

    async def test_j20_a_repeated_admission_makes_one_job(self, driver: StoreDriver, arrive: Arrive) -> None:
        await arrive(driver.store, "a", "task", b"{}", b"{}")
        (arrival,) = await driver.store.arrivals(9)
        twice = [Admission(arrival, "q", new_job("a")), Admission(arrival, "q", new_job("a"))]
        assert await driver.store.admit(twice) == 1
        assert await driver.store.admit(twice) == 0
        assert await driver.store.counts() == {"q": {State.READY: 1}}

    async def test_j20_a_late_admission_leaves_newer_arrivals_alone(
        self, driver: StoreDriver, arrive: Arrive
    ) -> None:
        """A worker admits arrival `a` a second time, after `b` has arrived. This must not remove `b`. So a
        store must never reuse the number of an admitted arrival."""
        await arrive(driver.store, "a", "task", b"{}", b"{}")
        (old,) = await driver.store.arrivals(9)
        await driver.store.admit([Admission(old, "q", new_job("a"))])
        await arrive(driver.store, "b", "task", b"{}", b"{}")
        assert await driver.store.admit([Admission(old, "q", new_job("a"))]) == 0
        assert [arrival.id for arrival in await driver.store.arrivals(9)] == ["b"]

    async def test_j20_i3_an_id_that_is_known_makes_no_second_job(
        self, driver: StoreDriver, arrive: Arrive
    ) -> None:
        await driver.ended("a")
        for verdict in (new_job("a"), RejectedArrival(queue="q", error=SAMPLE_ERROR)):
            await arrive(driver.store, "a", "task", b"{}", b"{}")
            assert await admit_oldest(driver, verdict) == 1
        assert await driver.store.arrivals(9) == []
        assert await driver.store.counts() == {"q": {State.DONE: 1}}

    async def test_j20_i3_the_id_of_a_pruned_job_makes_no_second_job(
        self, driver: StoreDriver, arrive: Arrive
    ) -> None:
        """An arrival with the id of a pruned job is removed and creates neither a job nor a rejection. This
        holds as long as the store remembers the id."""
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(age=0.0))})
        await driver.ended("a")
        assert (await driver.store.prune()).pruned == 1
        rejected = RejectedArrival(queue="q", error=SAMPLE_ERROR)
        for verdict in (new_job("a"), new_job("a", priority=10**9), rejected):
            await arrive(driver.store, "a", "task", b"{}", b"{}")
            assert await admit_oldest(driver, verdict) == 1
            assert await driver.state("a") is None
        assert await driver.store.arrivals(9) == []

    async def test_j21_a_rejected_arrival_is_a_failed_job(self, driver: StoreDriver, arrive: Arrive) -> None:
        await arrive(driver.store, "a", "task", b'{"n":"x"}', b"{}")
        assert await admit_oldest(driver, RejectedArrival(queue="q", error=SAMPLE_ERROR)) == 1
        job = await driver.job("a")
        assert (job.state, job.error, job.queue) == (State.FAILED, SAMPLE_ERROR, "q")
        assert (job.task, job.payload, job.finished) == ("task", b'{"n":"x"}', driver.clock.wall())

    async def test_j21_an_invalid_arrival_is_rejected_with_its_field(
        self, driver: StoreDriver, arrive: Arrive
    ) -> None:
        await arrive(driver.store, "a", "task", b"{}", b"{}")
        assert await admit_oldest(driver, new_job("a", priority=10**9, key="k", tags=("t",))) == 1
        job = await driver.job("a")
        assert (job.state, job.key, job.tags) == (State.FAILED, "k", ("t",)), "the valid ones are stored"
        assert job.error is not None
        assert job.error.message.startswith("priority")

    async def test_j20_a_page_starts_after_the_last_one(self, driver: StoreDriver, arrive: Arrive) -> None:
        for name in "abc":
            await arrive(driver.store, name, "task", b"{}", b"{}")
        first = await driver.store.arrivals(2)
        rest = await driver.store.arrivals(2, first[-1].seq)
        assert [arrival.id for arrival in [*first, *rest]] == ["a", "b", "c"]

    async def test_j21_length_limits_do_not_apply(self, driver: StoreDriver, arrive: Arrive) -> None:
        await driver.store.declare({"q": QueueSettings(max_length=1)})
        await driver.add("full")
        await arrive(driver.store, "a", "task", b"{}", b"{}")
        await admit_oldest(driver, new_job("a"))
        assert await driver.state("a") is State.READY

    async def test_j14_unique_keys_apply(self, driver: StoreDriver, arrive: Arrive) -> None:
        await driver.add(new_job("holder", unique=Unique("k")))
        await arrive(driver.store, "a", "task", b"{}", b"{}")
        await admit_oldest(driver, new_job("a", unique=Unique("k")))
        assert await driver.state("a") is None
        assert await driver.store.arrivals(9) == []
