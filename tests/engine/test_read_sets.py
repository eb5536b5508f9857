"""A verb on many jobs loads as often as a verb on few: each further load would run the verb again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from tests.engine.row_source import RecordsSource
from tests.engine.store import PrefetchStore
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, QueueShare, Settlement
from tidemill.core.feedback import Observation, UsageReport
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
)
from tidemill.core.outcomes import Snooze, Success, WriteAnswer
from tidemill.core.pools import PoolSettings
from tidemill.engine.queries import RowQuery
from tidemill.testing.clocks import ManualClock, SeededEntropy

MANY = 200
ENOUGH = 16
"""Loads: the read set, and doublings of a lane until it is long enough."""


class Few(PrefetchStore):
    usual = 1


async def filled(clock: ManualClock, **options: Any) -> Few:
    store = await Few(clock=clock, entropy=SeededEntropy(1)).open()
    await store.declare_pools({"p": PoolSettings(limits=(Limit.concurrent(MANY),))})
    jobs = tuple(NewJob(id=f"job-{n}", task="t", payload=b"{}", **options) for n in range(MANY))
    await store.insert([JobGroup("q", jobs)])
    return store


async def claimed(store: Few) -> list[ClaimedJob]:
    share = (QueueShare("q", MANY),)
    claims = await store.claim(ClaimRequest(worker="w", number=1, shares=share, limit=MANY, lease=30.0))
    assert len(claims.jobs) == MANY
    return claims.jobs


@pytest.fixture
def loads() -> Any:
    """Counts the loads since the last `clear`."""
    real, queries = RecordsSource.load, []

    async def load(self: RecordsSource, wanted: Mapping[RowQuery, int]) -> Any:
        queries.append(wanted)
        return await real(self, wanted)

    with mock.patch.object(RecordsSource, "load", load):
        yield queries


async def test_j60_reclaim(loads: list[Any]) -> None:
    clock = ManualClock()
    store = await filled(clock)
    await claimed(store)
    clock.advance(31)
    loads.clear()
    assert len((await store.reclaim()).ready) == MANY
    assert len(loads) <= ENOUGH


async def test_j52_claims_whose_reply_was_lost(loads: list[Any]) -> None:
    store = await filled(ManualClock())
    await claimed(store)
    loads.clear()
    assert len((await store.extend(Heartbeat(worker="w", received=1, lease=30.0))).returned) == MANY
    assert len(loads) <= ENOUGH


@pytest.mark.parametrize("change", [CancelJobs(), ArchiveJobs(), DeleteJobs(), ReprioritiseJobs(3)])
async def test_j70_amend(change: OperatorChange, loads: list[Any]) -> None:
    store = await filled(ManualClock())
    loads.clear()
    assert len((await store.amend(Filter(), change)).changed) == MANY
    assert len(loads) <= ENOUGH


async def test_j70_amend_running_and_finished_jobs(loads: list[Any]) -> None:
    store = await filled(ManualClock())
    await claimed(store)
    for change in (CancelJobs(), RetryJobs()):
        loads.clear()
        assert len((await store.amend(Filter(), change)).changed) == MANY
        assert len(loads) <= ENOUGH


async def test_p14_the_units_of_a_dead_worker(loads: list[Any]) -> None:
    """Also their late report (P16)."""
    store = await filled(ManualClock(), needs=(Need("p"),))
    jobs = await claimed(store)
    loads.clear()
    assert len((await store.reclaim(["w"])).ready) == MANY
    assert len(loads) <= ENOUGH
    loads.clear()
    late = [Settlement(job.id, job.fence, job.claim, Success(), spent=UsageReport()) for job in jobs]
    assert {*(await store.settle(late)).answers} == {WriteAnswer.STALE}
    assert len(loads) <= ENOUGH


async def test_p16_pools_observed_in_settlements(loads: list[Any]) -> None:
    """Pools that the jobs do not need themselves are loaded with the jobs, not one by one."""
    store = await filled(ManualClock())
    pools = {f"p{n}": PoolSettings(limits=(Limit.requests(10, per="minute"),)) for n in range(MANY)}
    await store.declare_pools(pools)
    jobs = await claimed(store)
    loads.clear()
    ended = [
        Settlement(
            job.id, job.fence, job.claim, Success(), spent=UsageReport(observations=(Observation(pool=pool),))
        )
        for job, pool in zip(jobs, pools, strict=True)
    ]
    assert {*(await store.settle(ended)).answers} == {WriteAnswer.OK}
    assert len(loads) <= ENOUGH


async def test_p12_jobs_of_many_lanes_that_wait_for_each_other(loads: list[Any]) -> None:
    """Each key of the pool admits a few of its lanes at a time, and each lane a few of its jobs."""
    store = await PrefetchStore(clock=ManualClock(), entropy=SeededEntropy(1)).open()
    await store.declare_pools({"k": PoolSettings(limits=(Limit.concurrent(3),), keyed=True)})
    request = ClaimRequest(worker="w", number=1, shares=(QueueShare("q", MANY),), limit=MANY, lease=30.0)
    held: list[ClaimedJob] = []
    for part in range(1, 4):
        jobs = (new(f"{part}-{n}", f"a{n % 7}", (Need("k", f"x{n % 20}"),)) for n in range(MANY))
        await store.insert([JobGroup("q", tuple(jobs))])
        loads.clear()
        back = [Settlement(job.id, job.fence, job.claim, Snooze(0.0), spent=UsageReport()) for job in held]
        settled = await store.settle(back, replace(request, number=part))
        assert settled.claims is not None
        held = settled.claims.jobs
        assert len(held) == 60
        assert len(loads) <= ENOUGH


def new(id_: str, key: str, needs: tuple[Need, ...]) -> NewJob:
    return NewJob(id=id_, task="t", payload=b"{}", key=key, needs=needs)
