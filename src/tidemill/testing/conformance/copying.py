"""Everything of a store into another: the one under test into the specification, and back."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tidemill.contract.copying import Copies, JobCopy
from tidemill.contract.store import Store
from tidemill.core.batching import Batching
from tidemill.core.changes import Cancel, Delete
from tidemill.core.checkpoints import Step, Try
from tidemill.core.claims import Claimed, Said
from tidemill.core.courses import Advance, Kind, Made, Next
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import InFlow, Read
from tidemill.core.limits import Limit
from tidemill.core.outcomes import Cancelled, Done, Fail, Retrying
from tidemill.core.pools import PoolChanges, PoolSettings
from tidemill.core.queues import QueueChanges, QueueSettings, Verdict
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.errors import ConfigurationError
from tidemill.inspect.copying import copy
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance.driver import OOPS, Driver, holding, ids, need, new, using
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.manual import ManualClock, SeededEntropy


async def fill(drive: Driver) -> None:
    """Something of everything, and in the end nobody who works."""
    store = drive.store
    await store.declare({"q": QueueSettings(key_concurrency=2), "r": QueueSettings(weight=3)})
    await store.override("q", QueueChanges(max_length=500), by="me", reason="why not")
    await store.pause("r", reason="night")
    await store.declare_pools(
        {
            "api": PoolSettings(limits=(Limit.requests(5, per="minute"), Limit.requests(100, per="hour"))),
            "site": PoolSettings(limits=(Limit.requests(2, per="minute"),), keyed=True),
        }
    )
    await store.override_pool("api", PoolChanges(amounts={"requests per minute": 4}), by="me")
    await store.close_pool("site", key="closed", by="me", reason="broken")
    await drive.add(
        *("done", "failed", "retrying", "cancelled", "deleted"),
        new("unique", unique=Unique("k")),
        new("later", delay=50.0, tags=("a", "b"), trace="t"),
        new("keyed", key="k", priority=2, expires=9000.0, timeout=3.0),
    )
    await drive.add(
        new("pooled", needs=(need("api", requests=1.0),)),
        new("second", needs=(need("api", requests=1.0),)),
        new("sited", needs=(need("site", "a.example", requests=1.0),)),
        new("batch", batching=Batching(max_items=3, linger=60.0)),
    )
    await drive.add("ready", "paused", queue="r")
    await store.advance([_flow(), _schedule(), _record()])
    held = {job.id: job for job in await drive.take(lease=5.0)}
    step = Step("paid", "digest")
    job = held["retrying"]
    await store.begin_step(job.id, Try(job.fence, job.claim, 1), step)
    await store.keep_step(job.id, Try(job.fence, job.claim, 1), step, b'{"a":1}', paid=True)
    await drive.beat(*(holding(one, log=(Said("line"),)) for one in held.values()), lease=5.0)
    outcomes: dict[str, Any] = {
        "done": Done(b'"well"'),
        "failed": Fail(OOPS),
        "retrying": Retrying(70.0, OOPS),
        "cancelled": Cancelled("no"),
    }
    for id_, outcome in outcomes.items():
        await drive.settle(held[id_], outcome)
    await drive.settle(held["pooled"], Done(), using("api", requests=1.0))
    await drive.settle(held["deleted"])
    await store.amend(Filter(ids=("deleted",)), Delete())
    drive.clock.advance(6.0)


def _flow() -> Advance:
    jobs = tuple(
        Made("r", new(job, flow=InFlow("f", "step", index, {"a": Read("b", 2)})))
        for index, job in enumerate(("part", "other part"))
    )
    return Advance(
        kind=Kind.FLOW,
        id="f",
        expected=0,
        next=Next(name="dub", state="running", record=b'{"steps":[]}', due_in=500.0),
        jobs=jobs,
    )


def _named(flow: str, expected: int, then: Next) -> Advance:
    return Advance(kind=Kind.FLOW, id=flow, expected=expected, next=then)


def _schedule() -> Advance:
    ends = Next(name="nightly", state="paused", record=b"{}", keep=1000.0)
    return Advance(kind=Kind.SCHEDULE, id="s", expected=0, next=ends)


def _record() -> Advance:
    kept = Next(name="token", state="active", record=b'{"hash":"1f"}', keep=1000.0)
    return Advance(kind=Kind.RECORD, id="r", expected=0, next=kept)


async def view(store: Store, jobs: list[str]) -> dict[str, Any]:
    """All that can be seen and does not hang on a place in line or on a boot."""
    return {
        "counts": await store.counts(),
        "jobs": [job and replace(job, seq=0, lease=0.0) for job in await store.get(jobs)],
        "order": ids((await store.find(Filter(), 1000)).jobs),
        "attempts": [await store.attempts(job) for job in jobs],
        "logs": [await store.logs(job) for job in jobs],
        "steps": [await store.checkpoints(job) for job in jobs],
        "queues": await store.queues(),
        "history": [await store.history(queue, 0.0) for queue in ("q", "r")],
        "minutes": [await store.pool_history(pool, 0.0) for pool in ("api", "site")],
        "pools": [
            (pool.name, pool.key, pool.declared, pool.override, pool.closed) for pool in await store.pools()
        ],
        "flows": (await store.find_courses(Kind.FLOW)).courses,
        "schedules": (await store.find_courses(Kind.SCHEDULE)).courses,
        "records": (await store.find_courses(Kind.RECORD)).courses,
        "backlog": [await store.backlog(queue) for queue in ("q", "r")],
    }


def _of_lane(jobs: list[Claimed], lane: str) -> list[str]:
    return [job.id for job in jobs if job.lane == lane]


NAMES = ["done", "failed", "retrying", "cancelled", "deleted", "unique", "later", "keyed"]
NAMES += ["pooled", "second", "sited", "batch", "ready", "paused", "part", "other part"]
ARRIVED = 3


class TestCopies:
    async def test_u5_out_of_it_nothing_is_lost(self, drive: Driver) -> None:
        await fill(drive)
        target = await MemoryStore(clock=drive.clock, entropy=SeededEntropy(7)).open()
        copied = await copy(drive.store, target)
        assert copied.differences == ()
        assert copied.reclaimed > 0
        assert await view(target, NAMES) == await view(drive.store, NAMES)

    async def test_u7_into_it_nothing_is_lost(
        self, make_store: MakeStore, clock: ManualClock, entropy: SeededEntropy
    ) -> None:
        source = await MemoryStore(clock=clock, entropy=SeededEntropy(7)).open()
        await fill(Driver(source, clock))
        target = await make_store(clock, entropy).open()
        try:
            assert (await copy(source, target)).differences == ()
            assert await view(target, NAMES) == await view(source, NAMES)
        finally:
            await target.close()

    async def test_u7_it_goes_on_as_if_nothing_had_been(self, drive: Driver) -> None:
        """Order, keys, remembered ids, windows and closures hold; fences go on growing (I5)."""
        source = await MemoryStore(clock=drive.clock, entropy=SeededEntropy(7)).open()
        there = Driver(source, drive.clock)
        await fill(there)
        last = max(job.job.fence for job in await source.copy_jobs(0, 100))
        await copy(source, drive.store)
        assert (await drive.add(new("again", unique=Unique("k"))))[0].id == "unique"
        assert (await drive.add("deleted"))[0].verdict is Verdict.ACCEPTED
        assert await drive.state("deleted") is None
        drive.clock.advance(100.0)
        taken, again = await drive.take("x"), await there.take("x")
        assert _of_lane(taken, "") == _of_lane(again, "") != []
        assert min(job.fence for job in taken) > last
        assert not {"second", "sited"} & set(ids(taken)), "their windows may have been used just before"

    async def test_u7_flows_are_looked_at_anew(self, drive: Driver) -> None:
        """What has ended unseen in the source is not lost in the target, and gone flows are remembered."""
        source = await MemoryStore(clock=drive.clock, entropy=SeededEntropy(7)).open()
        await fill(Driver(source, drive.clock))
        await source.amend(Filter(ids=("part",)), Cancel())
        await source.advance([_named("gone", 0, Next(name="dub", state="done", record=b"{}", keep=0.0))])
        await source.prune()
        await copy(source, drive.store)
        (one,) = (await drive.store.agenda(Kind.FLOW)).stirred
        assert (one.course.id, [end.job for end in one.ends]) == ("f", [""])
        assert await drive.state("part") is State.CANCELLED
        going = Next(name="dub", state="running", record=b"{}")
        answers = await drive.store.advance([_named("gone", 0, going), _named("f", 1, going)])
        assert [answer.done for answer in answers] == [False, True]

    async def test_u7_a_copy_may_be_repeated(self, drive: Driver) -> None:
        source = await MemoryStore(clock=drive.clock, entropy=SeededEntropy(7)).open()
        await fill(Driver(source, drive.clock))
        await copy(source, drive.store)
        before = await view(drive.store, NAMES)
        await copy(source, drive.store, resume=True)
        assert await view(drive.store, NAMES) == before

    async def test_u7_what_others_wrote_comes_too(self, drive: Driver, arrive: Arrive) -> None:
        for number in range(ARRIVED):
            await arrive(drive.store, f"a{number}", "task", b"[1]", b'{"queue": "q"}')
        target = await MemoryStore(clock=drive.clock, entropy=SeededEntropy(7)).open()
        assert (await copy(drive.store, target)).arrivals == ARRIVED
        there = [replace(arrival, seq=0) for arrival in await target.arrivals(10)]
        assert there == [replace(arrival, seq=0) for arrival in await drive.store.arrivals(10)]
        with pytest.raises(ConfigurationError, match="not empty"):
            await copy(target, drive.store)
        await copy(target, drive.store, resume=True)
        assert len(await drive.store.arrivals(10)) == ARRIVED

    async def test_u7_what_runs_is_refused(self, drive: Driver) -> None:
        await drive.add("a")
        taken = await drive.take_one()
        (running,) = await drive.store.copy_jobs()
        assert running.job.state is State.RUNNING
        fresh = JobCopy(job=replace(running.job, id="b", state=State.READY))
        with pytest.raises(ConfigurationError, match="'c' is running"):
            await drive.store.copy_in(Copies(jobs=[fresh, JobCopy(job=replace(running.job, id="c"))]))
        assert await drive.store.get(["b", "c"]) == [None, None]
        target = await MemoryStore(clock=drive.clock, entropy=SeededEntropy(7)).open()
        with pytest.raises(ConfigurationError, match="live worker"):
            await copy(drive.store, target)
        await drive.beat(holding(taken, renew=False), lease=1.0)
        drive.clock.advance(2.0)
        with pytest.raises(ConfigurationError, match="still run"):
            await copy(drive.store, target)
        assert await target.counts() == {}
