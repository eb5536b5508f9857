"""The SQLite store keeps the contracts."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tidemill.contract.store import Store
from tidemill.stores.sqlite import SqliteStore
from tidemill.testing.conformance import *  # noqa: F403 - the suite is meant to be taken whole
from tidemill.testing.conformance.fixtures import Arrive, MakeStore


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    return lambda clock, entropy: SqliteStore(tmp_path / "jobs.db", clock=clock, entropy=entropy)


@pytest.fixture
def arrive() -> Arrive:
    async def arrive(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
        assert isinstance(store, SqliteStore)
        outsider = apsw.Connection(str(store.path))
        row = (job, task, payload.decode(), options.decode())
        outsider.execute("INSERT INTO arrivals (id, task, payload, options) VALUES (?, ?, ?, ?)", row)
        outsider.close()

    return arrive
