"""A step of many jobs asks as often as a step of few: each further question would run the verb once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from tests.engine.source import RecordsSource
from tests.engine.store import LookingStore
from tidemill.core.changes import Archive, Cancel, Change, Delete, Reprioritise, RetryNow
from tidemill.core.claims import Claimed, ClaimRequest, Heartbeat, Settlement, Share
from tidemill.core.filters import Filter
from tidemill.core.job import Group, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Answer, Done, Snooze
from tidemill.core.pools import PoolSettings
from tidemill.core.spending import Observation, Spent
from tidemill.engine.wants import Want
from tidemill.testing.manual import ManualClock, SeededEntropy

MANY = 200
ENOUGH = 16
"""Looks: what is known beforehand, and doublings of a line until it is long enough."""


class Few(LookingStore):
    usual = 1


async def filled(clock: ManualClock, **options: Any) -> Few:
    store = await Few(clock=clock, entropy=SeededEntropy(1)).open()
    await store.declare_pools({"p": PoolSettings(limits=(Limit.concurrent(MANY),))})
    jobs = tuple(NewJob(id=f"job-{n}", task="t", payload=b"{}", **options) for n in range(MANY))
    await store.insert([Group("q", jobs)])
    return store


async def claimed(store: Few) -> list[Claimed]:
    share = (Share("q", MANY),)
    claims = await store.claim(ClaimRequest(worker="w", number=1, shares=share, limit=MANY, lease=30.0))
    assert len(claims.jobs) == MANY
    return claims.jobs


@pytest.fixture
def looks() -> Any:
    """How often the store was asked since the last `clear`."""
    real, asked = RecordsSource.look, []

    async def look(self: RecordsSource, wanted: Mapping[Want, int]) -> Any:
        asked.append(wanted)
        return await real(self, wanted)

    with mock.patch.object(RecordsSource, "look", look):
        yield asked


async def test_j60_reclaim(looks: list[Any]) -> None:
    clock = ManualClock()
    store = await filled(clock)
    await claimed(store)
    clock.advance(31)
    looks.clear()
    assert len((await store.reclaim()).ready) == MANY
    assert len(looks) <= ENOUGH


async def test_j52_claims_that_were_lost_on_the_way(looks: list[Any]) -> None:
    store = await filled(ManualClock())
    await claimed(store)
    looks.clear()
    assert len((await store.extend(Heartbeat(worker="w", received=1, lease=30.0))).returned) == MANY
    assert len(looks) <= ENOUGH


@pytest.mark.parametrize("change", [Cancel(), Archive(), Delete(), Reprioritise(3)])
async def test_j70_amend(change: Change, looks: list[Any]) -> None:
    store = await filled(ManualClock())
    looks.clear()
    assert len((await store.amend(Filter(), change)).changed) == MANY
    assert len(looks) <= ENOUGH


async def test_j70_amend_what_runs_and_what_has_ended(looks: list[Any]) -> None:
    store = await filled(ManualClock())
    await claimed(store)
    for change in (Cancel(), RetryNow()):
        looks.clear()
        assert len((await store.amend(Filter(), change)).changed) == MANY
        assert len(looks) <= ENOUGH


async def test_p14_the_units_of_a_dead_worker(looks: list[Any]) -> None:
    """And what it says of them after all (P16)."""
    store = await filled(ManualClock(), needs=(Need("p"),))
    jobs = await claimed(store)
    looks.clear()
    assert len((await store.reclaim(["w"])).ready) == MANY
    assert len(looks) <= ENOUGH
    looks.clear()
    late = [Settlement(job.id, job.fence, job.claim, Done(), spent=Spent()) for job in jobs]
    assert {*(await store.settle(late)).answers} == {Answer.STALE}
    assert len(looks) <= ENOUGH


async def test_p16_pools_that_settlements_speak_of(looks: list[Any]) -> None:
    """Of pools the jobs themselves do not need, each is looked up with the jobs and not one by one."""
    store = await filled(ManualClock())
    pools = {f"p{n}": PoolSettings(limits=(Limit.requests(10, per="minute"),)) for n in range(MANY)}
    await store.declare_pools(pools)
    jobs = await claimed(store)
    looks.clear()
    ended = [
        Settlement(job.id, job.fence, job.claim, Done(), spent=Spent(observations=(Observation(pool=pool),)))
        for job, pool in zip(jobs, pools, strict=True)
    ]
    assert {*(await store.settle(ended)).answers} == {Answer.OK}
    assert len(looks) <= ENOUGH


async def test_p12_jobs_of_many_lanes_that_wait_for_each_other(looks: list[Any]) -> None:
    """Each key of the pool is open to a few of its lanes at a time, each lane to a few of its jobs."""
    store = await LookingStore(clock=ManualClock(), entropy=SeededEntropy(1)).open()
    await store.declare_pools({"k": PoolSettings(limits=(Limit.concurrent(3),), keyed=True)})
    request = ClaimRequest(worker="w", number=1, shares=(Share("q", MANY),), limit=MANY, lease=30.0)
    held: list[Claimed] = []
    for part in range(1, 4):
        jobs = (new(f"{part}-{n}", f"a{n % 7}", (Need("k", f"x{n % 20}"),)) for n in range(MANY))
        await store.insert([Group("q", tuple(jobs))])
        looks.clear()
        back = [Settlement(job.id, job.fence, job.claim, Snooze(0.0), spent=Spent()) for job in held]
        settled = await store.settle(back, replace(request, number=part))
        assert settled.claims is not None
        held = settled.claims.jobs
        assert len(held) == 60
        assert len(looks) <= ENOUGH


def new(id_: str, key: str, needs: tuple[Need, ...]) -> NewJob:
    return NewJob(id=id_, task="t", payload=b"{}", key=key, needs=needs)
