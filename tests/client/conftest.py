from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.support import Overheard
from tidemill import Tidemill
from tidemill.client import handle
from tidemill.stores.memory import MemoryStore
from tidemill.stores.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def app(url: str) -> AsyncIterator[Tidemill]:
    async with Tidemill(url) as app:
        yield app


@pytest.fixture(params=["memory", "sqlite"])
def overheard(request: pytest.FixtureRequest, tmp_path: Path) -> Overheard:
    return Overheard(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "jobs.db"))


@pytest.fixture
def only_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking now and then takes longer than any test: only a ring can tell that a job ended."""
    monkeypatch.setattr(handle, "FIRST_LOOK", 600.0)
    monkeypatch.setattr(handle, "LONGEST_LOOK", 600.0)
