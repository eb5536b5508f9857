"""Workers that are killed for real, on every store: every flow ends, no step commits twice (I17, I18)."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
from pathlib import Path

import pytest

from tests.quotas.processes import Processes
from tidemill import Filter, State, Tidemill
from tidemill.contract.wakeups import agenda_topic
from tidemill.core.courses import Kind

FLOWS = int(os.environ.get("TIDEMILL_KILLED_FLOWS", "12"))
PARTS = 6
SUM = sum(range(PARTS)) - 2 - 2


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
    processes = Processes("tests.flows.killed_worker", environment, tmp_path / "output.txt")
    app, chance = application(url, witness), random.Random(7)
    try:
        async with app:
            await processes.start(2)
            for number in range(FLOWS):
                await send(app, number)
            for _ in range(FLOWS // 2):
                await gone_on(app, witness)
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
        found = await app.inspect.find(Filter(states=tuple(State)), limit=10_000)
        assert len(found.jobs) == FLOWS * (1 + PARTS + 1 + 1)
        assert {job.generation for job in found.jobs} == {0}
        ran = {line.split()[0] for line in witness.read_text().splitlines()}
        assert ran == {job.id for job in found.jobs}


async def gone_on(app: Tidemill, witness: Path) -> None:
    """Some step has run since, or all have."""
    before = lines(witness)
    while lines(witness) == before and await running(app):
        await woken(app)


async def woken(app: Tidemill) -> None:
    listener = app.store.listen([agenda_topic(Kind.FLOW)])
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
    counts = await app.store.course_counts(Kind.FLOW)
    return counts.get("running", 0) + counts.get("failing", 0)
