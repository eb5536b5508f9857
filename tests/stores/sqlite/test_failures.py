"""Failures inside a transaction: a locked file, a failed rollback, text that no store can keep."""

import asyncio
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.chaos.small_disk import fill, small_disk
from tests.stores.sqlite.conftest import group
from tidemill.core.claims import ClaimRequest, Heartbeat, QueueShare, Settlement
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.lane_selection import MAX_EXPIRED_PER_CLAIM
from tidemill.core.outcomes import Success
from tidemill.core.queues import InsertVerdict
from tidemill.core.states import State
from tidemill.errors import StoreError, StoreFull, StoreUnavailable
from tidemill.stores.sqlite import SqliteStore
from tidemill.testing.clocks import ManualClock


@pytest.mark.alone
async def test_i22_a_locked_file_is_reported_to_every_caller_in_time(path: Path, store: SqliteStore) -> None:
    """Callers that share a commit also share the wait."""
    await store.insert([group("before")])
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    calls = [asyncio.to_thread(store.blocking.insert, [group(f"sync-{n}")]) for n in range(3)]
    calls += [store.insert([group(f"async-{n}", f"more-{n}")]) for n in range(3)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {StoreUnavailable}
    assert time.monotonic() - began < 5
    other.execute("ROLLBACK")
    await store.insert([group("after")])
    assert (await store.counts())["default"] == {State.READY: 2}


async def test_a_failed_rollback_does_not_stop_the_writer(store: SqliteStore) -> None:
    def break_connection(step: Any) -> None:
        step.connection.close(force=True)
        raise ZeroDivisionError

    broken = store._writer.submit(break_connection, durable=True)
    with pytest.raises(StoreError):
        await broken
    await store.insert([group("after")])
    assert (await store.counts())["default"] == {State.READY: 1}


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (NewJob(id="a\0b", task="t", payload=b"{}"), "id"),
        (NewJob(id="a\ud800", task="t", payload=b"{}"), "id"),
        (NewJob(id="a", task="t\0", payload=b"{}"), "task"),
        (NewJob(id="a", task="t", payload=b"{}", key="\0"), "key"),
        (NewJob(id="a", task="t", payload=b"{}", trace="\0"), "trace"),
        (NewJob(id="a", task="t", payload=b"{}", tags=("\0",)), "tags"),
        (NewJob(id="a", task="t", payload=b"\xff"), "payload"),
    ],
    ids=["id", "surrogate", "task", "key", "trace", "tags", "payload"],
)
async def test_only_the_request_with_unstorable_text_is_refused(
    store: SqliteStore, bad: NewJob, field: str
) -> None:
    """J10, J13."""
    answers = await store.insert([JobGroup("default", (bad,)), group("good")])
    assert [answer.verdict for (answer,) in answers] == [InsertVerdict.INVALID, InsertVerdict.ACCEPTED]
    assert str(answers[0][0].problem).startswith(field)


async def test_an_arrival_with_invalid_text_does_not_hide_others(path: Path, store: SqliteStore) -> None:
    outsider = apsw.Connection(str(path))
    outsider.execute("INSERT INTO arrivals (id, task, payload) VALUES ('bad', 't', CAST(x'22ff22' AS TEXT))")
    outsider.execute("INSERT INTO arrivals (id, task, payload) VALUES ('good', 't', '{}')")
    assert [arrival.id for arrival in await store.arrivals(10)] == ["bad", "good"]


async def test_many_expired_jobs_are_cleared_over_several_claims(path: Path) -> None:
    """No claim takes long (J36)."""
    clock = ManualClock()
    store = await SqliteStore(path, clock=clock).open()
    jobs = tuple(
        NewJob(id=f"j{n}", task="t", payload=b"{}", expires=10.0) for n in range(3 * MAX_EXPIRED_PER_CLAIM)
    )
    await store.insert([JobGroup("q", jobs)])
    clock.advance(60)
    await store.insert([group("fresh", queue="q")])
    request = ClaimRequest(worker="w", number=1, shares=(QueueShare("q", 1),), limit=1, lease=30.0)
    claims = await store.claim(request)
    assert not claims.jobs
    assert claims.more
    assert (await store.counts())["q"][State.CANCELLED] <= 2 * MAX_EXPIRED_PER_CLAIM
    number = 1
    while not claims.jobs:
        number += 1
        assert claims.more
        claims = await store.claim(
            ClaimRequest(worker="w", number=number, shares=(QueueShare("q", 1),), limit=1, lease=30.0)
        )
    assert [job.id for job in claims.jobs] == ["fresh"]
    await store.close()


async def test_i24_a_full_disk_at_the_first_commit_after_a_boot_hides_no_lease(tmp_path: Path) -> None:
    """The commit that ends the leases of the last boot is rolled back: the next one ends them."""
    clock = ManualClock()
    with small_disk(tmp_path / "small", megabytes=2) as folder:
        store = await SqliteStore(folder / "jobs.db", clock=clock).open()
        await store.insert([group("a")])
        request = ClaimRequest(worker="w", number=1, shares=(QueueShare("default", 1),), limit=1, lease=30.0)
        assert [job.id for job in (await store.claim(request)).jobs] == ["a"]
        clock.reboot()
        ballast = fill(folder)
        with pytest.raises(StoreFull):
            await store.reclaim()
        ballast.unlink()
        await store.reclaim()
        assert (await store.counts())["default"] == {State.READY: 1}
        await store.close()


async def test_durable_verbs_wait_for_the_disk(store: SqliteStore) -> None:
    """The synchronous mode at each commit decides what survives a power cut (J15)."""
    modes: list[str] = []
    sync_mode = store._writer._set_synchronous

    def noting(connection: apsw.Connection, mode: str) -> None:
        modes.append(mode)
        sync_mode(connection, mode)
        assert connection.pragma("synchronous") == {"full": 2, "normal": 1}[mode]

    store._writer._set_synchronous = noting  # type: ignore[method-assign]
    await store.insert([group("a")])
    await store.insert([group("b", "c")])
    store.blocking.insert([group("d")])
    request = ClaimRequest(worker="w", number=1, shares=(QueueShare("default", 9),), limit=9, lease=30.0)
    assert modes == ["full"] * 3
    claims = await store.claim(request)
    await store.extend(Heartbeat(worker="w", received=1, lease=30.0))
    assert modes[3:] == ["normal", "normal"]
    await store.settle([Settlement(job.id, job.fence, job.claim, Success()) for job in claims.jobs])
    assert modes[5:] == ["full"]
