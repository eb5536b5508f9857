"""Real worker processes are killed, on every store: every flow ends, no step commits twice (I17, I18)."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.quotas.worker_processes import WorkerProcesses
from tidemill import Filter, FlowState, State, Tidemill
from tidemill.contract.coordination import worklist_topic
from tidemill.core.documents import DocumentKind

FLOWS = int(os.environ.get("TIDEMILL_KILLED_FLOWS", "12"))
PARTS = 6
SUM = sum(range(PARTS)) - 2 - 2
BRITTLE = "brittle/a"


@pytest.fixture(params=["sqlite", "redis_url", "postgres_url"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.mark.timeout(120 + 10 * FLOWS)
async def test_i17_killed_workers_leave_no_flow_behind(url: str, tmp_path: Path) -> None:
    witness = tmp_path / "witness.txt"
    environment = {"TIDEMILL_URL": url, "WITNESS": str(witness)}
    processes = WorkerProcesses("tests.flows.killed_worker", environment, tmp_path / "output.txt")
    app, chance = application(url, witness), random.Random(7)
    try:
        async with app:
            await processes.start(2)
            for number in range(FLOWS):
                await send(app, number)
            await send_brittle(app)
            for kill in range(FLOWS // 2):
                await wait_for_progress(app, witness)
                if kill == FLOWS // 4:
                    await retry_failed(app, witness)
                await asyncio.sleep(chance.random() / 20)  # anywhere in what comes of it
                await processes.kill(chance.randrange(2))
                await processes.start()
            while await running(app):
                processes.check()
                await woken(app)
    finally:
        await processes.stop()
    async with app:
        for number in range(FLOWS):
            assert await app.flow_handle(f"sum/{number}").result(timeout=1) == SUM
        assert await app.flow_handle(BRITTLE).result(timeout=1) == sum(range(PARTS))
        found = (await app.inspect.find(Filter(states=tuple(State)), limit=10_000)).jobs
        assert len(found) == FLOWS * (1 + PARTS + 1 + 1) + 1 + PARTS + 1, "nothing was pruned before its flow"
        again = {job.id: job.generation for job in found if job.generation}
        assert again == {f"{BRITTLE}/brittle/1": 1}, "a retry repeats nothing that is done"
        ran = {line.split()[0] for line in witness.read_text().splitlines()}
        assert ran == {job.id for job in found}
        assert await commits(app) == Counter(done=len(found) - FLOWS, failed=FLOWS + 1), "each once"


async def commits(app: Tidemill) -> Counter[str]:
    """Counts the settled jobs, as the store counts them in the same transaction: a second commit would add
    one."""
    minutes = await app.inspect.history("default", 0)
    counted = Counter(done=sum(one.done for one in minutes), failed=sum(one.failed for one in minutes))
    assert sum(one.cancelled for one in minutes) == 0
    return counted


async def send_brittle(app: Tidemill) -> None:
    from tests.flows import killed_worker as steps

    flow = app.flow("brittle", key="a")
    flow.add(steps.join, numbers=flow.map(steps.brittle, number=flow.add(steps.split, count=PARTS)))
    await flow.enqueue()


async def retry_failed(app: Tidemill, witness: Path) -> None:
    """Retries failed jobs by hand while workers are killed."""
    while (await app.inspect.flow(BRITTLE)).state is not FlowState.FAILED:
        await woken(app)
    witness.with_name("mended").touch()
    assert await app.inspect.retry_flow(BRITTLE)


async def wait_for_progress(app: Tidemill, witness: Path) -> None:
    """Waits until another step has run, or all have."""
    before = lines(witness)
    while lines(witness) == before and await running(app):
        await woken(app)


async def woken(app: Tidemill) -> None:
    listener = app.store.listen([worklist_topic(DocumentKind.FLOW)])
    listener.arm()
    await listener.wait(0.1)
    listener.close()


def lines(witness: Path) -> int:
    return len(witness.read_text().splitlines()) if witness.exists() else 0


def application(url: str, witness: Path) -> Tidemill:
    os.environ.update({"TIDEMILL_URL": url, "WITNESS": str(witness)})
    try:
        from tests.flows import killed_worker

        app: Tidemill = importlib.reload(killed_worker).app
        return app
    finally:
        del os.environ["TIDEMILL_URL"], os.environ["WITNESS"]


async def send(app: Tidemill, number: int) -> None:
    from tests.flows import killed_worker as steps

    flow = app.flow("sum", key=str(number))
    numbers = flow.add(steps.split, count=PARTS)
    parts = flow.map(steps.part, number=numbers).on_failure(compensate=steps.instead)
    flow.add(steps.join, numbers=parts)
    await flow.enqueue()


async def running(app: Tidemill) -> int:
    counts = await app.store.document_counts(DocumentKind.FLOW)
    return counts.get("running", 0) + counts.get("failing", 0)
