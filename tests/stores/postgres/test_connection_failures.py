"""A verb ends in time with an answer or a clear error, and is repeated only if it may be (J1, I22)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from tests.servers.proxy import Proxy
from tests.stores.postgres.conftest import Connect
from tidemill.errors import StoreError, StoreReadOnly, StoreUnavailable
from tidemill.stores.postgres import connection_pool
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.transaction import PostgresTransaction

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres


ADD = "INSERT INTO public.noted (what) VALUES ($1)"

CANCEL = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"


@pytest.fixture
async def noted(connection: PostgresConnection) -> PostgresConnection:
    """Returns a connection to a database with a table that counts the calls."""
    await connection.fetch("CREATE TABLE public.noted (what text)")
    return connection


async def count(connection: PostgresConnection) -> int:
    return int((await connection.fetch("SELECT count(*) FROM public.noted"))[0][0])


def end_all(server: Postgres) -> None:
    with server.client() as client:
        client.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'tidemill' AND pid <> pg_backend_pid()"
        )


async def test_j1_lost_connections_are_opened_again(
    noted: PostgresConnection, postgres_server: Postgres
) -> None:
    end_all(postgres_server)
    assert not await count(noted)


async def test_j1_an_uncommitted_verb_is_retried(
    noted: PostgresConnection, postgres_server: Postgres
) -> None:
    """Even a verb that may not be repeated: nothing was changed."""
    tries = 0

    async def work(step: PostgresTransaction) -> None:
        nonlocal tries
        tries += 1
        await step.fetch(ADD, "once")
        if tries == 1:
            end_all(postgres_server)
            await step.fetch(ADD, "never")

    await noted.run(work, repeatable=False)
    assert (tries, await count(noted)) == (2, 1)


async def test_a_deadlock_is_retried(noted: PostgresConnection) -> None:
    await noted.fetch("CREATE TABLE public.pair (id int PRIMARY KEY, n int DEFAULT 0)")
    await noted.fetch("INSERT INTO public.pair VALUES (1), (2)")
    met = asyncio.Barrier(2)
    tries = 0

    async def both(first: int, second: int) -> None:
        meets = True

        async def work(step: PostgresTransaction) -> None:
            nonlocal tries, meets
            tries += 1
            await step.fetch("UPDATE public.pair SET n = n + 1 WHERE id = $1", first)
            if meets:
                meets = False
                await met.wait()
            await step.fetch("UPDATE public.pair SET n = n + 1 WHERE id = $1", second)

        await noted.run(work, repeatable=False)

    await asyncio.gather(both(1, 2), both(2, 1))
    assert tries == 3
    assert [row["n"] for row in await noted.fetch("SELECT n FROM public.pair")] == [2, 2]


async def test_an_error_of_the_work_changes_nothing(noted: PostgresConnection) -> None:
    async def work(step: PostgresTransaction) -> None:
        await step.fetch(ADD, "never")
        raise LookupError

    with pytest.raises(LookupError):
        await noted.run(work)
    with pytest.raises(StoreError, match="DivisionByZeroError"):
        await noted.fetch("SELECT 1/0")
    assert not await count(noted)


async def test_a_cancelled_verb_leaves_a_working_connection(noted: PostgresConnection) -> None:
    waiting = asyncio.create_task(noted.fetch("SELECT pg_sleep(60)"))
    running = False
    while not running:
        running = bool(await noted.fetch("SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not await count(noted)


async def test_a_statement_that_the_server_ends(noted: PostgresConnection, postgres_server: Postgres) -> None:
    with postgres_server.client() as client:
        waiting = asyncio.create_task(noted.fetch("SELECT pg_sleep(60)"))
        while not client.execute(CANCEL).rowcount:  # noqa: ASYNC110 - until the server is at it
            await asyncio.sleep(0.01)
        with pytest.raises(StoreUnavailable, match=r"ended a statement .*user request.*statement_timeout"):
            await waiting


async def test_a_connection_to_a_server_that_became_a_standby_is_given_up(noted: PostgresConnection) -> None:
    """After a failover the host name may lead to another server: only a new connection finds it."""
    await noted.fetch("SET default_transaction_read_only = on")
    with pytest.raises(StoreReadOnly):
        await noted.fetch(ADD, "refused")
    await noted.fetch(ADD, "accepted")
    assert await count(noted) == 1


async def test_i22_more_callers_than_connections_take_turns(connect: Connect, postgres_url: str) -> None:
    connection = await connect(postgres_url + "?connections=2")
    await asyncio.gather(*(connection.fetch("SELECT pg_sleep(0.001)") for _ in range(50)))
    assert len(connection.pool._all) == 2
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await asyncio.gather(
            *(connection.fetch("SELECT pg_sleep(60)", time_limit=0.2) for _ in range(3)),
        )


async def test_idle_connections_are_closed(
    connection: PostgresConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(connection.fetch("SELECT pg_sleep(0.01)") for _ in range(5)))
    rush = len(connection.pool._all)
    assert rush > 1
    monkeypatch.setattr(connection_pool, "MAX_IDLE_SECONDS", 0.0)
    for _ in range(rush):
        await connection.fetch("SELECT 1")
    assert len(connection.pool._all) == 1


@pytest.fixture
async def proxied(
    connect: Connect, postgres_server: Postgres, postgres_url: str
) -> AsyncIterator[tuple[PostgresConnection, Proxy]]:
    async with Proxy(postgres_server.port) as proxy:
        url = postgres_url.replace(str(postgres_server.port), str(proxy.port))
        yield await connect(url), proxy


async def test_j1_only_repeatable_verbs_are_retried_after_a_lost_answer(
    noted: PostgresConnection, proxied: tuple[PostgresConnection, Proxy]
) -> None:
    connection, proxy = proxied
    await connection.fetch(ADD, "prepared")
    proxy.cut_after(0)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await connection.fetch(ADD, "unknown", repeatable=False)
    assert await count(noted) <= 2
    before = await count(noted)
    await connection.fetch(ADD, "prepared")
    proxy.cut_after(0)
    await connection.fetch(ADD, "repeated", repeatable=True)
    assert before + 2 <= await count(noted) <= before + 3


async def test_i22_a_silent_network_ends_in_an_error(proxied: tuple[PostgresConnection, Proxy]) -> None:
    connection, proxy = proxied
    proxy.hold()
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await connection.fetch("SELECT 1", time_limit=0.3)
    proxy.release()
    assert (await connection.fetch("SELECT 1"))[0][0] == 1


async def test_a_closed_store_says_so(connection: PostgresConnection) -> None:
    await connection.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        await connection.fetch("SELECT 1")
    await connection.open()
    assert (await connection.fetch("SELECT 1"))[0][0] == 1


async def test_a_child_process_opens_its_own_connections(noted: PostgresConnection) -> None:
    """It neither uses nor closes the parent's connections."""
    await noted.fetch(ADD, "parent")
    child = os.fork()
    if not child:
        os._exit(asyncio.Runner(loop_factory=asyncio.new_event_loop).run(_in_child(noted)))
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    await noted.fetch(ADD, "parent")
    assert await count(noted) == 3


async def _in_child(connection: PostgresConnection) -> int:
    await connection.open()
    await connection.fetch(ADD, "child")
    await connection.close()
    return 0
