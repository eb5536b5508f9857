from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidemill.core.jobs import JobGroup, NewJob
from tidemill.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore(path).open()
    yield store
    await store.close()


def group(*ids: str, queue: str = "default", payload: bytes = b"{}") -> JobGroup:
    return JobGroup(queue, tuple(NewJob(id=name, task="noop", payload=payload) for name in ids))
