from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.inspect.support import ManualWorker
from tidemill import Inspector, Task, Tidemill
from tidemill.testing import ManualClock, SeededEntropy


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def app(url: str, clock: ManualClock) -> AsyncIterator[Tidemill]:
    async with Tidemill(url, clock=clock, entropy=SeededEntropy(1)) as app:
        app.queue("feeds")
        yield app


@pytest.fixture
def refresh(app: Tidemill) -> Task[[str], None]:
    @app.task(name="refresh", queue="feeds")
    async def refresh(feed: str) -> None: ...

    return refresh


@pytest.fixture
def app_inspector(app: Tidemill) -> Inspector:
    return app.inspect


@pytest.fixture
def manual_worker(app: Tidemill) -> ManualWorker:
    return ManualWorker(app.store)
