"""arrivals and admit: requests written into the store by somebody else."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from tidemill.contract.jobs import Admission, Refused
from tidemill.core.job import NewJob
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.testing.conformance.driver import OOPS, Driver, ids, new
from tidemill.testing.conformance.fixtures import Arrive


async def admit(drive: Driver, *verdicts: NewJob | Refused) -> int:
    """The oldest arrivals, one verdict each."""
    waiting = await drive.store.arrivals(len(verdicts))
    pairs = zip(waiting, verdicts, strict=True)
    return await drive.store.admit([Admission(arrival, "q", verdict) for arrival, verdict in pairs])


class TestAdmit:
    async def test_arrivals_are_listed_oldest_first(self, drive: Driver, arrive: Arrive) -> None:
        for name in "abc":
            await arrive(drive.store, name, "task", b'{"n":1}', b'{"priority":2}')
        listed = await drive.store.arrivals(2)
        assert [arrival.id for arrival in listed] == ["a", "b"]
        assert (listed[0].task, listed[0].payload, listed[0].options) == (
            "task",
            b'{"n":1}',
            b'{"priority":2}',
        )
        assert await drive.store.counts() == {}

    async def test_j20_becomes_a_job_and_is_forgotten(self, drive: Driver, arrive: Arrive) -> None:
        await arrive(drive.store, "a", "task", b"{}", b"{}")
        assert await admit(drive, new("a", priority=2)) == 1
        assert await drive.store.arrivals(9) == []
        assert (await drive.job("a")).priority == 2
        assert ids(await drive.take()) == ["a"]

    async def test_j20_once_however_often_it_is_tried(self, drive: Driver, arrive: Arrive) -> None:
        await arrive(drive.store, "a", "task", b"{}", b"{}")
        (arrival,) = await drive.store.arrivals(9)
        twice = [Admission(arrival, "q", new("a")), Admission(arrival, "q", new("a"))]
        assert await drive.store.admit(twice) == 1
        assert await drive.store.admit(twice) == 0
        assert await drive.store.counts() == {"q": {State.READY: 1}}

    async def test_j20_a_late_admission_leaves_newer_arrivals_alone(
        self, drive: Driver, arrive: Arrive
    ) -> None:
        """A number used again would let a worker that lags behind take off what it never read."""
        await arrive(drive.store, "a", "task", b"{}", b"{}")
        (old,) = await drive.store.arrivals(9)
        await drive.store.admit([Admission(old, "q", new("a"))])
        await arrive(drive.store, "b", "task", b"{}", b"{}")
        assert await drive.store.admit([Admission(old, "q", new("a"))]) == 0
        assert [arrival.id for arrival in await drive.store.arrivals(9)] == ["b"]

    async def test_j20_i3_an_id_that_is_known_makes_no_second_job(
        self, drive: Driver, arrive: Arrive
    ) -> None:
        await drive.ended("a")
        for verdict in (new("a"), Refused(queue="q", error=OOPS)):
            await arrive(drive.store, "a", "task", b"{}", b"{}")
            assert await admit(drive, verdict) == 1
        assert await drive.store.arrivals(9) == []
        assert await drive.store.counts() == {"q": {State.DONE: 1}}

    async def test_j20_i3_an_id_that_is_remembered_makes_no_second_job(
        self, drive: Driver, arrive: Arrive
    ) -> None:
        """The store pruned the job and remembers its id: another job or a refusal would be a second one."""
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(age=0.0))})
        await drive.ended("a")
        assert (await drive.store.prune()).pruned == 1
        for verdict in (new("a"), new("a", priority=10**9), Refused(queue="q", error=OOPS)):
            await arrive(drive.store, "a", "task", b"{}", b"{}")
            assert await admit(drive, verdict) == 1
            assert await drive.state("a") is None
        assert await drive.store.arrivals(9) == []

    async def test_j21_a_refused_one_is_a_failed_job(self, drive: Driver, arrive: Arrive) -> None:
        await arrive(drive.store, "a", "task", b'{"n":"x"}', b"{}")
        assert await admit(drive, Refused(queue="q", error=OOPS)) == 1
        job = await drive.job("a")
        assert (job.state, job.error, job.queue) == (State.FAILED, OOPS, "q")
        assert (job.task, job.payload, job.finished) == ("task", b'{"n":"x"}', drive.clock.wall())

    async def test_j21_what_the_store_cannot_take_is_refused_by_name(
        self, drive: Driver, arrive: Arrive
    ) -> None:
        await arrive(drive.store, "a", "task", b"{}", b"{}")
        assert await admit(drive, new("a", priority=10**9, key="k", tags=("t",))) == 1
        job = await drive.job("a")
        assert (job.state, job.key, job.tags) == (State.FAILED, "k", ("t",)), "what is good is kept"
        assert job.error is not None
        assert job.error.message.startswith("priority")

    async def test_j20_a_page_goes_on_behind_the_last(self, drive: Driver, arrive: Arrive) -> None:
        for name in "abc":
            await arrive(drive.store, name, "task", b"{}", b"{}")
        first = await drive.store.arrivals(2)
        rest = await drive.store.arrivals(2, first[-1].seq)
        assert [arrival.id for arrival in [*first, *rest]] == ["a", "b", "c"]

    async def test_j21_length_limits_do_not_apply(self, drive: Driver, arrive: Arrive) -> None:
        await drive.store.declare({"q": QueueSettings(max_length=1)})
        await drive.add("full")
        await arrive(drive.store, "a", "task", b"{}", b"{}")
        await admit(drive, new("a"))
        assert await drive.state("a") is State.READY

    async def test_j14_unique_keys_apply(self, drive: Driver, arrive: Arrive) -> None:
        await drive.add(new("holder", unique=Unique("k")))
        await arrive(drive.store, "a", "task", b"{}", b"{}")
        await admit(drive, new("a", unique=Unique("k")))
        assert await drive.state("a") is None
        assert await drive.store.arrivals(9) == []
