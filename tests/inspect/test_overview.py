"""What a display that asks every second costs."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill import Limit, Task, Tidemill
from tidemill.testing import ManualClock


@pytest.fixture
def call(app: Tidemill) -> Task[[str], None]:
    @app.task(name="call", queue="feeds", pool=app.pool("api", Limit.requests(1, per="minute")))
    async def call(host: str) -> None: ...

    return call


@pytest.fixture
def asked(app: Tidemill, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When what waits was read, which takes a second here."""
    times: list[float] = []
    store: Any = app.store
    read = store.demand

    async def demand() -> Any:
        times.append(clock.boot())
        clock.advance(1.0)
        return await read()

    monkeypatch.setattr(store, "demand", demand)
    return times


async def test_a_forecast_that_took_long_is_made_seldom(
    app: Tidemill, call: Task[[str], None], clock: ManualClock, asked: list[float]
) -> None:
    inspector = app.inspect
    began = clock.boot()
    for _ in range(25):
        await call.enqueue("a")
        overview = await inspector.overview(sparing=True)
        [feeds] = [queue for queue in overview.queues if queue.name == "feeds"]
        assert feeds.forecast is not None
        clock.advance(1.0)
    assert [at - began for at in asked] == [0.0, 11.0, 22.0]
    assert overview.pools[0].waiting > 20
    await inspector.overview()
    assert len(asked) == 4, "unless somebody wants to know it now"
