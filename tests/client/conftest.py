from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.support import RecordingStore
from tidemill import Tidemill
from tidemill.client import job_handle
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
def recording_store(request: pytest.FixtureRequest, tmp_path: Path) -> RecordingStore:
    return RecordingStore(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "jobs.db"))


@pytest.fixture
def wakeups_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling takes longer than any test: only a wake-up can report the end of a job."""
    monkeypatch.setattr(job_handle, "FIRST_POLL_SECONDS", 600.0)
    monkeypatch.setattr(job_handle, "MAX_POLL_SECONDS", 600.0)
