"""The PostgreSQL store fulfils the contracts."""

from __future__ import annotations

import asyncpg
import pytest
from hypothesis import settings
from tests.servers.prepared_database import PreparedDatabase

from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.stores.postgres import PostgresStore
from tidemill.testing.conformance import *  # noqa: F403 - the suite is meant to be taken whole
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep import LOCKSTEP_SETTINGS, run_lockstep


@pytest.fixture
def make_store(prepared_postgres_url: str) -> MakeStore:
    return lambda clock, entropy: PostgresStore(prepared_postgres_url, clock=clock, entropy=entropy)


@pytest.fixture(autouse=True)
def no_type_introspection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if asyncpg queries types, which it does on every new connection and which takes longer than
    most verbs."""

    async def asked(_: object, types: set[int], __: object) -> None:
        pytest.fail(f"asyncpg queried the types {sorted(types)}: send them as text")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", asked)


async def arrive_by_sql(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
    """Inserts an arrival as any program with a connection does."""
    assert isinstance(store, PostgresStore)
    address = store.address
    outsider = await asyncpg.connect(address.dsn)
    try:
        words = (job, task, payload.decode(), options.decode())
        await outsider.execute(f"SELECT {address.schema}.insert_arrival($1, $2, $3, $4)", *words)
    finally:
        await outsider.close()


@pytest.fixture
def arrive() -> Arrive:
    return arrive_by_sql


def test_lockstep_with_memory(prepared_postgres: PreparedDatabase, prepared_postgres_url: str) -> None:
    """The PostgreSQL store returns and shows the same as the memory store."""

    def empty(clock: Clock, entropy: Entropy) -> PostgresStore:
        prepared_postgres.rewind()
        return PostgresStore(prepared_postgres_url, clock=clock, entropy=entropy)

    # each verb takes a dozen round trips
    run_lockstep(
        empty,
        arrive_by_sql,
        settings(LOCKSTEP_SETTINGS, max_examples=max(1, LOCKSTEP_SETTINGS.max_examples // 2)),
    )
