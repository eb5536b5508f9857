"""Conformance tests for copying a store: the store under test into the memory store, and back."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tidemill.contract.copy import JobCopy, StoreCopy
from tidemill.contract.store import Store
from tidemill.core.batching import BatchPolicy
from tidemill.core.checkpoints import StepAttempt, StepKey
from tidemill.core.claims import ClaimedJob, LogEntry
from tidemill.core.documents import Advance, DocumentJob, DocumentKind, DocumentUpdate
from tidemill.core.filters import Filter
from tidemill.core.jobs import FlowPosition, ResultReference
from tidemill.core.limits import Limit
from tidemill.core.operator_changes import CancelJobs, DeleteJobs
from tidemill.core.outcomes import Cancellation, FinalFailure, RetryLater, Success
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import InsertVerdict, QueueChanges, QueueSettings
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.errors import ConfigurationError
from tidemill.inspect.store_copy import copy_store
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import ManualClock, SeededEntropy
from tidemill.testing.conformance.fixtures import (
    SAMPLE_ERROR,
    Arrive,
    MakeStore,
    StoreDriver,
    held_job,
    ids,
    need,
    new_job,
    usage_of_call,
)


async def fill_store(driver: StoreDriver) -> None:
    """Fills the store with rows of every kind. At the end no worker is alive: all leases have expired."""
    store = driver.store
    await store.declare({"q": QueueSettings(key_concurrency=2), "r": QueueSettings(weight=3)})
    await store.override("q", QueueChanges(max_length=500), by="me", reason="why not")
    await store.pause("r", reason="night")
    await store.declare_pools(
        {
            "api": PoolSettings(limits=(Limit.requests(5, per="minute"), Limit.requests(100, per="hour"))),
            "site": PoolSettings(limits=(Limit.requests(2, per="minute"),), keyed=True),
        }
    )
    await store.override_pool("api", LimitChanges(amounts={"requests per minute": 4}), by="me")
    await store.close_pool("site", key="closed", by="me", reason="broken")
    await driver.add(
        *("done", "failed", "retrying", "cancelled", "deleted"),
        new_job("unique", unique=Unique("k")),
        new_job("later", delay=50.0, tags=("a", "b"), trace="t"),
        new_job("keyed", key="k", priority=2, expires=9000.0, timeout=3.0),
    )
    await driver.add(
        new_job("pooled", needs=(need("api", requests=1.0),)),
        new_job("second", needs=(need("api", requests=1.0),)),
        new_job("sited", needs=(need("site", "a.example", requests=1.0),)),
        new_job("batch", batching=BatchPolicy(max_items=3, linger=60.0)),
    )
    await driver.add("ready", "paused", queue="r")
    await store.advance([_flow_document(), _schedule_document(), _record_document()])
    held = {job.id: job for job in await driver.take(lease=5.0)}
    step = StepKey("paid", "digest")
    job = held["retrying"]
    await store.begin_step(job.id, StepAttempt(job.fence, job.claim, 1), step)
    await store.keep_step(job.id, StepAttempt(job.fence, job.claim, 1), step, b'{"a":1}', paid=True)
    await driver.beat(*(held_job(claimed, log=(LogEntry("line"),)) for claimed in held.values()), lease=5.0)
    outcomes: dict[str, Any] = {
        "done": Success(b'"well"'),
        "failed": FinalFailure(SAMPLE_ERROR),
        "retrying": RetryLater(70.0, SAMPLE_ERROR),
        "cancelled": Cancellation("no"),
    }
    for id_, outcome in outcomes.items():
        await driver.settle(held[id_], outcome)
    await driver.settle(held["pooled"], Success(), usage_of_call("api", requests=1.0))
    await driver.settle(held["deleted"])
    await store.amend(Filter(ids=("deleted",)), DeleteJobs())
    driver.clock.advance(6.0)


def _flow_document() -> Advance:
    jobs = tuple(
        DocumentJob("r", new_job(job, flow=FlowPosition("f", "step", index, {"a": ResultReference("b", 2)})))
        for index, job in enumerate(("part", "other part"))
    )
    return Advance(
        kind=DocumentKind.FLOW,
        id="f",
        expected=0,
        next=DocumentUpdate(name="dub", state="running", record=b'{"steps":[]}', due_in=500.0),
        jobs=jobs,
    )


def _write_document(flow: str, expected: int, then: DocumentUpdate) -> Advance:
    return Advance(kind=DocumentKind.FLOW, id=flow, expected=expected, next=then)


def _schedule_document() -> Advance:
    update = DocumentUpdate(name="nightly", state="paused", record=b"{}", keep=1000.0)
    return Advance(kind=DocumentKind.SCHEDULE, id="s", expected=0, next=update)


def _record_document() -> Advance:
    update = DocumentUpdate(name="token", state="active", record=b'{"hash":"1f"}', keep=1000.0)
    return Advance(kind=DocumentKind.RECORD, id="r", expected=0, next=update)


async def view_store(store: Store, jobs: list[str]) -> dict[str, Any]:
    """Returns everything that the read methods show of the store and these jobs, without sequence numbers and
    leases."""
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
        "flows": (await store.find_documents(DocumentKind.FLOW)).documents,
        "schedules": (await store.find_documents(DocumentKind.SCHEDULE)).documents,
        "records": (await store.find_documents(DocumentKind.RECORD)).documents,
        "backlog": [await store.backlog(queue) for queue in ("q", "r")],
    }


def _jobs_of_lane(jobs: list[ClaimedJob], lane: str) -> list[str]:
    return [job.id for job in jobs if job.lane == lane]


JOB_NAMES = ["done", "failed", "retrying", "cancelled", "deleted", "unique", "later", "keyed"]
JOB_NAMES += ["pooled", "second", "sited", "batch", "ready", "paused", "part", "other part"]
ARRIVAL_COUNT = 3


class TestStoreCopy:
    async def test_u5_copying_out_loses_nothing(self, driver: StoreDriver) -> None:
        await fill_store(driver)
        target = await MemoryStore(clock=driver.clock, entropy=SeededEntropy(7)).open()
        copied = await copy_store(driver.store, target)
        assert copied.differences == ()
        assert copied.reclaimed > 0
        assert await view_store(target, JOB_NAMES) == await view_store(driver.store, JOB_NAMES)

    async def test_u7_copying_in_loses_nothing(
        self, make_store: MakeStore, clock: ManualClock, entropy: SeededEntropy
    ) -> None:
        source = await MemoryStore(clock=clock, entropy=SeededEntropy(7)).open()
        await fill_store(StoreDriver(source, clock))
        target = await make_store(clock, entropy).open()
        try:
            assert (await copy_store(source, target)).differences == ()
            assert await view_store(target, JOB_NAMES) == await view_store(source, JOB_NAMES)
        finally:
            await target.close()

    async def test_u7_a_copied_store_continues_as_before(self, driver: StoreDriver) -> None:
        """A copy keeps order, unique keys, known ids, windows and closures; fences still grow (I5)."""
        source = await MemoryStore(clock=driver.clock, entropy=SeededEntropy(7)).open()
        source_driver = StoreDriver(source, driver.clock)
        await fill_store(source_driver)
        last = max(job.job.fence for job in await source.copy_jobs(0, 100))
        await copy_store(source, driver.store)
        assert (await driver.add(new_job("again", unique=Unique("k"))))[0].id == "unique"
        assert (await driver.add("deleted"))[0].verdict is InsertVerdict.ACCEPTED
        assert await driver.state("deleted") is None
        driver.clock.advance(100.0)
        taken, taken_from_source = await driver.take("x"), await source_driver.take("x")
        assert _jobs_of_lane(taken, "") == _jobs_of_lane(taken_from_source, "") != []
        assert min(job.fence for job in taken) > last
        assert not {"second", "sited"} & set(ids(taken)), "their windows may be used up"

    async def test_u7_copied_flows_are_on_the_worklist(self, driver: StoreDriver) -> None:
        """A flow with a job change that the source store has not processed is on the worklist of the copy.
        The copy refuses a new flow with the id of a pruned flow."""
        source = await MemoryStore(clock=driver.clock, entropy=SeededEntropy(7)).open()
        await fill_store(StoreDriver(source, driver.clock))
        await source.amend(Filter(ids=("part",)), CancelJobs())
        await source.advance(
            [_write_document("gone", 0, DocumentUpdate(name="dub", state="done", record=b"{}", keep=0.0))]
        )
        await source.prune()
        await copy_store(source, driver.store)
        (item,) = (await driver.store.worklist(DocumentKind.FLOW)).work_items
        assert (item.document.id, [end.job for end in item.changes]) == ("f", [""])
        assert await driver.state("part") is State.CANCELLED
        going = DocumentUpdate(name="dub", state="running", record=b"{}")
        answers = await driver.store.advance(
            [_write_document("gone", 0, going), _write_document("f", 1, going)]
        )
        assert [answer.done for answer in answers] == [False, True]

    async def test_u7_a_copy_may_be_repeated(self, driver: StoreDriver) -> None:
        source = await MemoryStore(clock=driver.clock, entropy=SeededEntropy(7)).open()
        await fill_store(StoreDriver(source, driver.clock))
        await copy_store(source, driver.store)
        before = await view_store(driver.store, JOB_NAMES)
        await copy_store(source, driver.store, resume=True)
        assert await view_store(driver.store, JOB_NAMES) == before

    async def test_u7_arrivals_are_copied(self, driver: StoreDriver, arrive: Arrive) -> None:
        for number in range(ARRIVAL_COUNT):
            await arrive(driver.store, f"a{number}", "task", b"[1]", b'{"queue": "q"}')
        target = await MemoryStore(clock=driver.clock, entropy=SeededEntropy(7)).open()
        assert (await copy_store(driver.store, target)).arrivals == ARRIVAL_COUNT
        copied = [replace(arrival, seq=0) for arrival in await target.arrivals(10)]
        assert copied == [replace(arrival, seq=0) for arrival in await driver.store.arrivals(10)]
        with pytest.raises(ConfigurationError, match="not empty"):
            await copy_store(target, driver.store)
        await copy_store(target, driver.store, resume=True)
        assert len(await driver.store.arrivals(10)) == ARRIVAL_COUNT

    async def test_u7_copying_a_running_job_is_refused(self, driver: StoreDriver) -> None:
        await driver.add("a")
        taken = await driver.take_one()
        (running,) = await driver.store.copy_jobs()
        assert running.job.state is State.RUNNING
        fresh = JobCopy(job=replace(running.job, id="b", state=State.READY))
        with pytest.raises(ConfigurationError, match="'c' is running"):
            await driver.store.copy_in(StoreCopy(jobs=[fresh, JobCopy(job=replace(running.job, id="c"))]))
        assert await driver.store.get(["b", "c"]) == [None, None]
        target = await MemoryStore(clock=driver.clock, entropy=SeededEntropy(7)).open()
        with pytest.raises(ConfigurationError, match="live worker"):
            await copy_store(driver.store, target)
        await driver.beat(held_job(taken, renew=False), lease=1.0)
        driver.clock.advance(2.0)
        with pytest.raises(ConfigurationError, match="still run"):
            await copy_store(driver.store, target)
        assert await target.counts() == {}
