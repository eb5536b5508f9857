"""The cost of a display that refreshes every second."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill import Filter, GiveUp, Limit, QueueTotal, Retry, State, Task, Tidemill
from tidemill.core.queues import DAY_SECONDS
from tidemill.errors import QueueNotFound
from tidemill.metrics import rollup
from tidemill.testing import ManualClock


@pytest.fixture
def call(app: Tidemill) -> Task[[str], None]:
    @app.task(name="call", queue="feeds", pool=app.pool("api", Limit.requests(1, per="minute")))
    async def call(host: str) -> None: ...

    return call


@pytest.fixture
def demand_reads(app: Tidemill, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records when demand was read; each read takes a second here."""
    times: list[float] = []
    store: Any = app.store
    read = store.demand

    async def demand() -> Any:
        times.append(clock.boot())
        clock.advance(1.0)
        return await read()

    monkeypatch.setattr(store, "demand", demand)
    return times


async def test_a_slow_forecast_is_cached(
    app: Tidemill, call: Task[[str], None], clock: ManualClock, demand_reads: list[float]
) -> None:
    inspector = app.inspect
    began = clock.boot()
    for _ in range(25):
        await call.enqueue("a")
        overview = await inspector.overview(cached=True)
        [feeds] = [queue for queue in overview.queues if queue.name == "feeds"]
        assert feeds.forecast is not None
        clock.advance(1.0)
    assert [at - began for at in demand_reads] == [0.0, 11.0, 22.0]
    assert overview.pools[0].waiting > 20
    await inspector.overview()
    assert len(demand_reads) == 4, "unless somebody wants to know it now"


async def work(app: Tidemill) -> None:
    await app.worker(until_idle=True, concurrency=2).run()


async def test_deleted_jobs_stay_in_the_totals(app: Tidemill, clock: ManualClock) -> None:
    @app.task(name="sing", queue="songs", retry=Retry(attempts=1))
    async def sing(song: str) -> None:
        if song == "跑调":
            raise GiveUp("out of tune")

    assert await app.inspect.totals("songs") == {"songs": QueueTotal()}
    await app.enqueue_many(sing.job(song) for song in ("one", "二", "跑调"))
    await work(app)
    await app.inspect.cancel((await sing.using(delay=60).enqueue("never")).id)
    found = QueueTotal(done=2, failed=1, cancelled=1)
    assert (await app.inspect.totals())["songs"] == found
    await app.inspect.delete(Filter(queue="songs", states=tuple(State)))
    clock.advance(2 * DAY_SECONDS)
    await rollup.save_totals(app.store)
    await sing.enqueue("three")
    await work(app)
    assert (await app.inspect.totals("songs"))["songs"] == QueueTotal(done=3, failed=1, cancelled=1)
    clock.advance(9 * DAY_SECONDS)
    await rollup.save_totals(app.store)
    assert (await app.inspect.totals("songs"))["songs"].done == 3


async def test_a_queue_without_finished_jobs_has_zeros_and_an_unknown_one_is_refused(app: Tidemill) -> None:
    await app.client.store(declare=True)
    assert await app.inspect.totals("feeds") == {"feeds": QueueTotal()}
    with pytest.raises(QueueNotFound, match="feedz"):
        await app.inspect.totals("feeds", "feedz")
