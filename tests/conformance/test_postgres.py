"""The PostgreSQL store keeps the contracts."""

from __future__ import annotations

import asyncpg
import pytest
from hypothesis import settings
from tests.servers.rewinding import Rewinding

from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.stores.postgres import PostgresStore
from tidemill.testing.conformance import *  # noqa: F403 - the suite is meant to be taken whole
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep import SETTINGS, run_lockstep


@pytest.fixture
def make_store(prepared_postgres_url: str) -> MakeStore:
    return lambda clock, entropy: PostgresStore(prepared_postgres_url, clock=clock, entropy=entropy)


@pytest.fixture(autouse=True)
def nothing_is_asked_about_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncpg would do so on every new connection, for longer than most verbs take."""

    async def asked(_: object, types: set[int], __: object) -> None:
        pytest.fail(f"the server was asked what the types {sorted(types)} are made of: send them as text")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", asked)


async def arrive_by_sql(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
    """As any program would that can reach the database."""
    assert isinstance(store, PostgresStore)
    address = store.address
    outsider = await asyncpg.connect(address.dsn)
    try:
        words = (job, task, payload.decode(), options.decode())
        await outsider.execute(f"SELECT {address.schema}.arrive($1, $2, $3, $4)", *words)
    finally:
        await outsider.close()


@pytest.fixture
def arrive() -> Arrive:
    return arrive_by_sql


def test_lockstep_with_memory(prepared_postgres: Rewinding, prepared_postgres_url: str) -> None:
    """Everything the PostgreSQL store says and shows equals what the specification says and shows."""

    def empty(clock: Clock, entropy: Entropy) -> PostgresStore:
        prepared_postgres.rewind()
        return PostgresStore(prepared_postgres_url, clock=clock, entropy=entropy)

    # each step takes a dozen trips
    run_lockstep(empty, arrive_by_sql, settings(SETTINGS, max_examples=max(1, SETTINGS.max_examples // 2)))
