"""What others wrote, and what a big store must not cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import apsw

from tests.inspect.support import Hand
from tidemill import Filter, Inspector, Page, State, Task, Tidemill
from tidemill.contract.jobs import Admission, Refused
from tidemill.contract.store import Store
from tidemill.core.job import Error, Job
from tidemill.inspect.causes import Code


async def test_a_foreign_request_that_is_no_json_can_be_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    async with Tidemill(f"sqlite:///{file}") as app:
        foreign = apsw.Connection(str(file))
        foreign.execute("INSERT INTO arrivals (id, task, payload) VALUES ('a', 'refresh', '{糟糕')")
        foreign.close()
        [arrival] = await app.store.arrivals(1)
        refused = Refused(queue="feeds", error=Error("InvalidPayload", "payload: is not JSON"))
        await app.store.admit([Admission(arrival, "feeds", refused)])
        look = app.inspect
        assert (await look.job("a")).payload == "{糟糕"
        told = await look.explain("a")
        assert told.code is Code.FAILED
        assert told.sentence.startswith("The job was refused ")
        assert told.sentence.endswith(": InvalidPayload: payload: is not JSON.")
        assert [job.id for job in (await look.find(Filter(text="糟糕"))).jobs] == ["a"]
        assert (await look.find(Filter(fields=(("feed", "a"),)))).jobs == ()
        assert (await look.delete("a")).changed == 1


class Counting:
    """The real store; counts the jobs it hands out."""

    def __init__(self, store: Store) -> None:
        self.store, self.read = store, 0

    async def find(
        self, wanted: Filter, limit: int = 100, cursor: int | None = None, looks: int | None = None
    ) -> Page:
        page = await self.store.find(wanted, limit, cursor, looks)
        self.read += len(page.jobs)
        return page

    async def get(self, ids: list[str]) -> list[Job | None]:
        self.read += len(ids)
        return await self.store.get(ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


async def test_looking_at_one_thing_does_not_read_everything(
    app: Tidemill, refresh: Task[[str], None], hand: Hand
) -> None:
    """A store with a million jobs must not hurt."""
    await app.enqueue_many(refresh.using(key="a.example").job(f"{number}") for number in range(300))
    await app.inspect.override("feeds", by="ann", key_concurrency=2)
    await hand.claim(2)
    store = Counting(app.store)

    async def here() -> Store:
        return cast("Store", store)

    look = Inspector(here, app.tasks, app.signals)
    waiting = (await app.store.find(Filter(states=(State.READY,)), 1)).jobs[0]
    await look.queue("feeds")
    await look.queues()
    await look.overview()
    await look.history("feeds", 0)
    assert (await look.count(Filter(queue="feeds", states=(State.READY,)))).jobs == 298
    assert store.read == 0
    await look.job(waiting.id)
    assert store.read == 1
    told = await look.explain(waiting.id)
    assert [cause.code for cause in told.causes] == [Code.KEY_LIMIT, Code.BEHIND]
    assert told.causes[1].details["ahead"] == 297
    assert store.read <= 5
