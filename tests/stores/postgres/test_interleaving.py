"""Other transactions commit in the middle of a fast path function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimRequest, ClaimResult, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import Snooze, Success, WriteAnswer
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.postgres import connection as connection_file
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.connection_pool import VERB_SETTINGS
from tidemill.stores.postgres.transaction import PostgresTransaction
from tidemill.stores.postgres.user_transactions import handler_transaction

GATE = 7
"""An advisory lock that no store uses."""
_STOP_CLAIMS = f"""
CREATE FUNCTION tidemill.wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({GATE});
    RETURN NEW;
END
$$;
CREATE TRIGGER gate BEFORE UPDATE ON tidemill.workers FOR EACH ROW EXECUTE FUNCTION tidemill.wait_at_gate();
"""
_AT_GATE = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted
"""
_WAITS_FOR_CLAIMS = """
SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND locktype = 'relation' AND NOT granted
"""
_WAIT_FOR_ROWS = """
SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype IN ('transactionid', 'tuple') AND NOT granted
"""
"""pg_stat_activity would not work: within a transaction it keeps its first snapshot."""
_WAITS_FOR_JOBS = """
SELECT count(*) FROM pg_locks WHERE relation = 'tidemill.jobs'::regclass AND NOT granted
"""


@pytest.fixture
async def store(prepared_postgres_url: str) -> AsyncIterator[Store]:
    store = await PostgresStore(prepared_postgres_url).open()
    yield store
    await store.close()


@pytest.fixture
async def outsider(prepared_postgres_url: str, store: Store) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(prepared_postgres_url)
    yield connection
    await connection.execute("DROP FUNCTION IF EXISTS tidemill.wait_at_gate CASCADE")
    await connection.close()


@asynccontextmanager
async def claim_under_way(
    store: Store, outsider: asyncpg.Connection
) -> AsyncIterator[asyncio.Task[ClaimResult]]:
    """Stops a claim after its check that everything is plain, and before it takes a job."""
    await outsider.execute(_STOP_CLAIMS)
    await outsider.execute("SELECT pg_advisory_lock($1)", GATE)
    claim = asyncio.create_task(store.claim(request(1)))
    while not await outsider.fetchval(_AT_GATE, GATE):
        pass
    yield claim
    await outsider.execute("SELECT pg_advisory_unlock($1)", GATE)
    await claim


async def until_they_wait(outsider: asyncpg.Connection, count: int) -> None:
    """Waits until `count` verbs wait for locked rows."""
    while await outsider.fetchval(_WAIT_FOR_ROWS) < count:
        pass


def new(id_: str, **options: Any) -> NewJob:
    return NewJob(id=id_, task="t", payload=b"1", **options)


def request(number: int) -> ClaimRequest:
    return ClaimRequest(worker="w", number=number, shares=(QueueShare("q", 5),), limit=5, lease=30.0)


async def test_j30_a_job_with_a_key_that_falls_due_meanwhile_is_not_lost(
    store: Store, outsider: asyncpg.Connection
) -> None:
    """The fast path promotes only plain jobs: a job with a key needs a row in `lanes`."""
    await store.insert([JobGroup("q", (new("keyed", key="k", delay=3600.0),))])
    async with claim_under_way(store, outsider) as claim:
        await outsider.execute("UPDATE tidemill.jobs SET due = 1")
    assert (await claim).jobs == []
    assert await store.check() == ()
    assert [one.id for one in (await store.claim(request(2))).jobs] == ["keyed"]


async def test_j36_a_job_that_expires_meanwhile_does_not_start(
    store: Store, outsider: asyncpg.Connection
) -> None:
    await store.insert([JobGroup("q", (new("short", expires=3600.0),))])
    async with claim_under_way(store, outsider) as claim:
        await outsider.execute("UPDATE tidemill.jobs SET expires = 1; UPDATE tidemill.ready SET expires = 1")
    assert (await claim).jobs == []
    assert (await store.claim(request(2))).jobs == []


async def test_j34_nothing_starts_after_a_pause_was_confirmed(
    store: Store, outsider: asyncpg.Connection
) -> None:
    """A claim that found the queue open comes first; the pause waits for it."""
    await store.insert([JobGroup("q", (new("job"),))])
    async with claim_under_way(store, outsider) as claim:
        pause = asyncio.create_task(store.pause("q"))
        while not (waits := await outsider.fetchval(_WAITS_FOR_CLAIMS)) and not pause.done():
            pass
        assert waits, "the pause is told to hold, and the claim goes on"
    assert [job.id for job in (await claim).jobs] == ["job"]
    await pause


async def test_j12_a_new_length_limit_counts_concurrent_inserts(
    store: Store, outsider: asyncpg.Connection
) -> None:
    await store.insert([JobGroup("q", (new("first"),))])
    async with outsider.transaction():
        await outsider.execute("LOCK TABLE tidemill.jobs IN SHARE MODE")
        insert = asyncio.create_task(store.insert([JobGroup("q", (new("second"), new("third")))]))
        while not await outsider.fetchval(_WAITS_FOR_JOBS):
            pass
        declare = asyncio.create_task(store.declare({"q": QueueSettings(max_length=2)}))
        while not (waits := await outsider.fetchval(_WAITS_FOR_CLAIMS)) and not declare.done():
            pass
    assert waits, "the length is told to hold, and jobs go in beyond it"
    await asyncio.gather(insert, declare)


async def test_j71_a_settlement_and_a_change_of_the_same_jobs_do_not_deadlock(
    store: Store, outsider: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server detects a deadlock only after a second, and every other engine transaction waits
    meanwhile."""
    rolled_back: list[BaseException] = []

    def may_repeat(error: BaseException, **_: object) -> bool:
        rolled_back.append(error)
        return True

    monkeypatch.setattr(connection_file, "is_retryable", may_repeat)
    await store.insert([JobGroup("q", (new("a"), new("b"), new("c")))])
    jobs = (await store.claim(request(1))).jobs
    back = [Settlement(job.id, job.fence, job.claim, Snooze(60.0)) for job in reversed(jobs)]
    async with outsider.transaction():
        await outsider.execute("SELECT FROM tidemill.jobs WHERE id = 'b' FOR UPDATE")
        settle = asyncio.create_task(store.settle(back))
        await until_they_wait(outsider, 1)
        amend = asyncio.create_task(store.amend(Filter(ids=("a", "b", "c")), CancelJobs()))
        await until_they_wait(outsider, 2)
    await asyncio.gather(settle, amend)
    assert not rolled_back


async def test_j14_a_stricter_default_isolation_level_is_overridden(
    prepared_postgres_url: str,
) -> None:
    """A transaction that waited for its turn must see the commits before it."""
    url = f"{prepared_postgres_url}?default_transaction_isolation=repeatable+read"
    first = await PostgresStore(url).open()
    handles = [first, *[await first.new_handle().open() for _ in range(3)]]
    for n in range(5):
        jobs = [new(f"{n}-{key}", key=key, unique=Unique(f"u{n}")) for key in "abcd"]
        await asyncio.gather(
            *(store.insert([JobGroup("q", (job,))]) for store, job in zip(handles, jobs, strict=True))
        )
    assert await first.counts() == {"q": {State.READY: 5}}
    for store in handles:
        await store.close()


async def test_i22_a_process_stopped_in_a_handler_transaction_blocks_others_only_briefly(
    connection: PostgresConnection,
) -> None:
    """From the settlement on, all other engine transactions wait for it."""
    store = await PostgresStore(connection.address.dsn).open()
    await store.insert([JobGroup("q", (new("job"),))])
    (job,) = (await store.claim(request(1))).jobs
    await store.close()
    allowed: list[str] = []

    async def settle(step: PostgresTransaction, _settlements: object) -> list[WriteAnswer]:
        allowed.append(await step.value("SHOW idle_in_transaction_session_timeout"))
        return [WriteAnswer.OK]

    async with handler_transaction(connection, settle, job.id, job.fence, job.claim) as ending:
        ending.settlement = Settlement(job.id, job.fence, job.claim, Success())
    assert allowed == [VERB_SETTINGS["idle_in_transaction_session_timeout"]]
