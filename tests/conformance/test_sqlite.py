"""The SQLite store fulfils the contracts."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import apsw
import pytest

from tidemill.contract.store import Store
from tidemill.stores.sqlite import SqliteStore
from tidemill.testing.conformance import *  # noqa: F403 - the suite is meant to be taken whole
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep import run_lockstep


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    return lambda clock, entropy: SqliteStore(tmp_path / "jobs.db", clock=clock, entropy=entropy)


async def arrive_by_sql(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
    assert isinstance(store, SqliteStore)
    outsider = apsw.Connection(str(store.path))
    row = (job, task, payload.decode(), options.decode())
    outsider.execute("INSERT INTO arrivals (id, task, payload, options) VALUES (?, ?, ?, ?)", row)
    outsider.close()


@pytest.fixture
def arrive() -> Arrive:
    return arrive_by_sql


def test_lockstep_with_memory(tmp_path: Path) -> None:
    """The SQLite store returns and shows the same as the memory store."""
    # Thousands of commits that need no protection from a power cut: they do not wait for the disk.
    shared_memory = Path("/dev/shm")  # noqa: S108 - a fresh folder is made in it
    folder = Path(mkdtemp(dir=shared_memory)) if shared_memory.is_dir() else tmp_path
    histories = count()
    try:
        run_lockstep(
            lambda clock, entropy: SqliteStore(
                folder / f"{next(histories)}.db", clock=clock, entropy=entropy
            ),
            arrive_by_sql,
        )
    finally:
        rmtree(folder)
