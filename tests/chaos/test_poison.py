"""A job that kills its process fails alone; a claim with a lost reply is no crash (I8)."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.chaos_run import ROOT
from tests.chaos.poison_app import app, maybe_poison
from tidemill import Filter, State, Tidemill
from tidemill.core.claims import ClaimRequest, Heartbeat, QueueShare, Settlement, SettleResult
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.errors import StoreUnavailable
from tidemill.stores.sqlite import SqliteStore


async def test_one_poison_job_among_500_fails_alone(tmp_path: Path) -> None:
    store = await SqliteStore(tmp_path / "jobs.db").open()
    app._store = store
    async with app:
        handles = await app.enqueue_many(maybe_poison.job(n == 250) for n in range(500))
        command = ["worker", "tests.chaos.poison_app:app", "--processes", "2", "--concurrency", "100"]
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tidemill", *command, "--until-idle"),
            env={**os.environ, "CHAOS_FOLDER": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await worker.wait() == 0
        jobs = [job for job in await app.store.get([handle.id for handle in handles]) if job is not None]
    assert Counter(job.state for job in jobs) == {State.DONE: 499, State.FAILED: 1}
    assert [job.reason for job in jobs if job.state is State.FAILED] == ["poison"]
    assert jobs[250].state is State.FAILED


class CutReplies(SqliteStore):
    """Executes each verb and then cuts the connection: the reply of every other claim is lost."""

    cuts = 0

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        settled = await super().settle(settlements, request)
        if (
            settled.claims is not None
            and settled.claims.jobs
            and self.cuts < 50
            and not self._is_delivered(request)
        ):
            self.cuts += 1
            raise StoreUnavailable("the reply was cut")
        return settled

    def _is_delivered(self, request: ClaimRequest | None) -> bool:
        """Returns whether the reply is delivered; a repeated claim gets its reply."""
        number = 0 if request is None else request.number
        delivered, self._last = self.__dict__.get("_last") == number, number
        return delivered


async def test_fifty_cut_claim_replies_are_no_crashes(tmp_path: Path) -> None:
    store = CutReplies(tmp_path / "jobs.db")
    local = Tidemill(store=store)
    # Claims one or two jobs at a time, so that there are many claims to cut.
    local.queue("default", concurrency=2)
    ran: Counter[int] = Counter()

    @local.task(name="noop")
    async def noop(n: int) -> None:
        ran[n] += 1

    async with local:
        await local.enqueue_many(noop.job(n) for n in range(200))
        await local.worker(concurrency=2, until_idle=True, lease=2.0).run()
        page = await local.store.find(Filter(), limit=500)
    assert store.cuts == 50
    assert len(page.jobs) == 200
    assert {(job.state, job.crashes, job.attempts) for job in page.jobs} == {(State.DONE, 0, 1)}
    assert set(ran.values()) == {1}


async def test_claims_lost_for_good_go_back_uncounted(tmp_path: Path) -> None:
    """The worker never repeats these claims; its heartbeat does not list the jobs, which releases them."""
    store = await SqliteStore(tmp_path / "jobs.db").open()
    names = [f"job-{n}" for n in range(50)]
    await store.insert([JobGroup("q", tuple(NewJob(id=n, task="t", payload=b"{}") for n in names))])
    for number in range(1, 51):
        share = (QueueShare("q", 1),)
        await store.claim(ClaimRequest(worker="w", number=number, shares=share, limit=1, lease=30.0))
    extended = await store.extend(Heartbeat(worker="w", received=50, lease=30.0))
    assert sorted(extended.returned) == sorted(names)
    jobs = (await store.find(Filter(queue="q"))).jobs
    assert {(job.state, job.crashes) for job in jobs} == {(State.READY, 0)}
    await store.close()
