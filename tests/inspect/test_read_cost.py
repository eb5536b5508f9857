"""Payloads of other programs, and queries whose cost must not grow with the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import apsw

from tests.inspect.support import ManualWorker
from tidemill import Filter, Inspector, JobPage, State, Task, Tidemill
from tidemill.contract.jobs import Admission, RejectedArrival
from tidemill.contract.store import Store
from tidemill.core.jobs import Error, Job
from tidemill.inspect.causes import CauseCode


async def test_an_arrival_that_is_not_json_can_be_inspected(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    async with Tidemill(f"sqlite:///{file}") as app:
        foreign = apsw.Connection(str(file))
        foreign.execute("INSERT INTO arrivals (id, task, payload) VALUES ('a', 'refresh', '{糟糕')")
        foreign.close()
        [arrival] = await app.store.arrivals(1)
        refused = RejectedArrival(queue="feeds", error=Error("InvalidPayload", "payload: is not JSON"))
        await app.store.admit([Admission(arrival, "feeds", refused)])
        app_inspector = app.inspect
        assert (await app_inspector.job("a")).payload == "{糟糕"
        explanation = await app_inspector.explain("a")
        assert explanation.code is CauseCode.FAILED
        assert explanation.sentence.startswith("The job was refused ")
        assert explanation.sentence.endswith(": InvalidPayload: payload: is not JSON.")
        assert [job.id for job in (await app_inspector.find(Filter(text="糟糕"))).jobs] == ["a"]
        assert (await app_inspector.find(Filter(fields=(("feed", "a"),)))).jobs == ()
        assert (await app_inspector.delete("a")).changed == 1


class CountingStore:
    """A real store that counts the jobs it returns."""

    def __init__(self, store: Store) -> None:
        self.store, self.read = store, 0

    async def find(
        self, wanted: Filter, limit: int = 100, cursor: int | None = None, scan_limit: int | None = None
    ) -> JobPage:
        page = await self.store.find(wanted, limit, cursor, scan_limit)
        self.read += len(page.jobs)
        return page

    async def get(self, ids: list[str]) -> list[Job | None]:
        self.read += len(ids)
        return await self.store.get(ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


async def test_inspecting_one_object_does_not_read_all_jobs(
    app: Tidemill, refresh: Task[[str], None], manual_worker: ManualWorker
) -> None:
    """A store with a million jobs must not make it slow."""
    await app.enqueue_many(refresh.using(key="a.example").job(f"{number}") for number in range(300))
    await app.inspect.override("feeds", by="ann", key_concurrency=2)
    await manual_worker.claim(2)
    store = CountingStore(app.store)

    async def here() -> Store:
        return cast("Store", store)

    app_inspector = Inspector(here, app.tasks, app.signals)
    waiting = (await app.store.find(Filter(states=(State.READY,)), 1)).jobs[0]
    await app_inspector.queue("feeds")
    await app_inspector.queues()
    await app_inspector.overview()
    await app_inspector.history("feeds", 0)
    assert (await app_inspector.count(Filter(queue="feeds", states=(State.READY,)))).jobs == 298
    assert store.read == 0
    await app_inspector.job(waiting.id)
    assert store.read == 1
    explanation = await app_inspector.explain(waiting.id)
    assert [cause.code for cause in explanation.causes] == [CauseCode.KEY_LIMIT, CauseCode.BEHIND]
    assert explanation.causes[1].details["ahead"] == 297
    assert store.read <= 5
