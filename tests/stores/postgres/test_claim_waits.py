"""A claim reports how long it waited for other engine transactions, by the server's clock (P20)."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueShare, Settlement
from tidemill.core.feedback import UsageReport
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import JobRelease
from tidemill.core.pools import PoolSettings
from tidemill.stores.postgres import PostgresStore

LOCK = "SELECT pg_advisory_xact_lock('tidemill.jobs'::regclass::oid::bigint)"
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def request(number: int) -> ClaimRequest:
    return ClaimRequest(worker="w", number=number, shares=(QueueShare("q", 1),), limit=1, lease=30.0)


async def _claimed(store: PostgresStore, held: ClaimedJob | None) -> float | None:
    """Claims, with the settlement of `held` if given, and returns the reported wait."""
    if held is None:
        return (await store.claim(request(2))).waited
    settlement = Settlement(held.id, held.fence, held.claim, JobRelease(), UsageReport(made=False))
    claims = (await store.settle([settlement], request(2))).claims
    return None if claims is None else claims.waited


@pytest.mark.parametrize("settles", [False, True])
async def test_p20_a_claim_reports_how_long_it_waited_for_its_turn(postgres_url: str, settles: bool) -> None:
    store = await PostgresStore(postgres_url).open()
    other, watcher = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    try:
        await store.declare_pools({"p": PoolSettings(limits=(Limit.requests(9, per="minute"),))})
        jobs = [NewJob(id=id_, task="t", payload=b"{}", needs=(Need("p"),)) for id_ in "ab"]
        await store.insert([JobGroup("q", tuple(jobs))])
        first = await store.claim(request(1))
        assert first.waited is not None
        [held] = first.jobs
        await other.execute("BEGIN")
        await other.execute(LOCK)
        claiming = asyncio.ensure_future(_claimed(store, held if settles else None))
        began = time.monotonic()
        while not await watcher.fetchval(WAITING):  # noqa: ASYNC110 - the server sends no event
            await asyncio.sleep(0)
        seen = time.monotonic()
        await watcher.execute("SELECT pg_sleep(0.3)")
        until = time.monotonic()
        await other.execute("COMMIT")
        waited = await claiming
        assert waited is not None
        assert until - seen <= waited <= time.monotonic() - began
        again = await store.claim(request(2))
        assert (len(again.jobs), again.waited) == (1, None), "a repetition: its units are older"
    finally:
        await other.close()
        await watcher.close()
        await store.close()
