from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidemill import Tidemill


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def app(url: str) -> AsyncIterator[Tidemill]:
    async with Tidemill(url) as app:
        yield app
