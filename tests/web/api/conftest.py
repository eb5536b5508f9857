from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.web.api.api_client import ApiClient, shop_app
from tidemill.testing import ManualClock, SeededEntropy


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def api(url: str, clock: ManualClock) -> AsyncIterator[ApiClient]:
    async with shop_app(url, clock=clock, entropy=SeededEntropy(1)) as app:
        yield ApiClient(app)
