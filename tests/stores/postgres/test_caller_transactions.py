"""Jobs written through a caller's connection commit or vanish with the caller's rows (X1).

Uses the real libraries, each with its own way to begin, commit and roll back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_async

from tests.stores.postgres.conftest import Connect
from tidemill.errors import ConfigurationError
from tidemill.stores.postgres import user_transactions
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.connection import PostgresConnection

WORDS = ("j1", "songs:describe", '{"songs":["a"]}', "{}")


class RolledBackError(Exception):
    """Raised to roll back on purpose."""


async def arrivals(connection: PostgresConnection) -> list[tuple[str, str, str, str]]:
    rows = await connection.fetch("SELECT id, task, payload, options FROM tidemill.arrivals ORDER BY seq")
    return [tuple(row) for row in rows]


# -- sync


@contextmanager
def by_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def by_psycopg_cursor(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        yield cursor


@contextmanager
def by_sqlalchemy(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def by_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with orm.Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


SYNC = [by_psycopg, by_psycopg_cursor, by_sqlalchemy, by_session]


@pytest.mark.parametrize("begin", SYNC)
async def test_x1_sync(connect: Connect, postgres_url: str, begin: Callable[[str], Any]) -> None:
    connection = await connect()
    await asyncio.to_thread(send_and_roll_back, begin, connection.address, postgres_url)
    assert not await arrivals(connection)
    await asyncio.to_thread(send_and_commit, begin, connection.address, postgres_url)
    assert await arrivals(connection) == [WORDS]


def send_and_roll_back(begin: Callable[[str], Any], address: PostgresAddress, url: str) -> None:
    with pytest.raises(RolledBackError), begin(url) as caller:
        user_transactions.insert_arrival_sync(caller, address, WORDS)
        raise RolledBackError


def send_and_commit(begin: Callable[[str], Any], address: PostgresAddress, url: str) -> None:
    with begin(url) as caller, psycopg.connect(url) as looking:
        user_transactions.insert_arrival_sync(caller, address, WORDS)
        assert not looking.execute("SELECT FROM tidemill.arrivals").fetchall()
        with pytest.raises(ConfigurationError, match="is not async; use enqueue_sync"):
            asyncio.run(user_transactions.insert_arrival(caller, address, WORDS))


async def test_x1_django(connect: Connect, postgres_url: str) -> None:
    """Accepts Django's connection proxy, a connection, or an alias."""
    connection = await connect()
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stores.postgres.django_program", postgres_url, stdout=subprocess.PIPE
    )
    output, _ = await program.communicate()
    assert not program.returncode
    assert [row[0] for row in await arrivals(connection)] == ["proxy", "wrapper", "alias"]
    lines = output.decode().splitlines()
    assert [line.split(";")[0] for line in lines] == [
        *["connection: it leads to a sqlite database, and the store is in PostgreSQL"] * 2,
        "connection: Django's connection is not async",
    ]


# -- async


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def by_async_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def by_async_sqlalchemy(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy_async.create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_async_session(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy_async.create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    try:
        async with sqlalchemy_async.AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


ASYNC = [by_asyncpg, by_asyncpg_pool, by_async_psycopg, by_async_sqlalchemy, by_async_session]


@pytest.mark.parametrize("begin", ASYNC)
async def test_x1_async(connect: Connect, postgres_url: str, begin: Callable[[str], Any]) -> None:
    connection = await connect(schema="elsewhere")
    with pytest.raises(RolledBackError):
        async with begin(postgres_url) as caller:
            await user_transactions.insert_arrival(caller, connection.address, WORDS)
            raise RolledBackError
    assert not await arrivals(connection)
    async with begin(postgres_url) as caller:
        await user_transactions.insert_arrival(caller, connection.address, WORDS)
        assert not await arrivals(connection)
        with pytest.raises(ConfigurationError, match="is async; await enqueue"):
            user_transactions.insert_arrival_sync(caller, connection.address, WORDS)
    assert await arrivals(connection) == [WORDS]


# -- plain SQL


async def test_x1_plain_sql(connect: Connect, postgres_url: str) -> None:
    connection = await connect()
    with psycopg.connect(postgres_url) as caller:
        row = caller.execute(
            """SELECT tidemill.enqueue('songs:describe', '{"songs": ["a"]}', '{"priority": 1}')"""
        ).fetchone()
        assert row is not None
        given = caller.execute("SELECT tidemill.enqueue(task => 'tidy', id => 'j7')").fetchone()
        assert given == ("j7",)
    assert len(row[0]) == 32
    assert await arrivals(connection) == [
        (row[0], "songs:describe", '{"songs": ["a"]}', '{"priority": 1}'),
        ("j7", "tidy", "{}", "{}"),
    ]


async def test_x1_a_user_needs_only_usage_of_the_schema(connect: Connect, postgres_url: str) -> None:
    connection = await connect()
    await connection.fetch("DROP ROLE IF EXISTS writer")
    await connection.fetch("CREATE ROLE writer LOGIN")
    url = postgres_url.replace("postgres@", "writer@")
    try:
        with psycopg.connect(url) as caller, pytest.raises(ConfigurationError, match="GRANT USAGE ON SCHEMA"):
            user_transactions.insert_arrival_sync(caller, connection.address, WORDS)
        await connection.fetch("GRANT USAGE ON SCHEMA tidemill TO writer")
        with psycopg.connect(url) as caller:
            user_transactions.insert_arrival_sync(caller, connection.address, WORDS)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                caller.execute("DELETE FROM tidemill.arrivals")
            caller.rollback()
            user_transactions.insert_arrival_sync(caller, connection.address, WORDS)
        assert await arrivals(connection) == [WORDS]
    finally:
        await connection.fetch("REVOKE USAGE ON SCHEMA tidemill FROM writer")
        await connection.fetch("DROP ROLE writer")


# -- X2, X3


async def test_x2_an_arrival_wakes_a_worker_when_it_is_committed(connect: Connect, postgres_url: str) -> None:
    connection = await connect()
    listener = connection.wakeups.listen(["arrivals"])
    listener.arm()
    await connection.wakeups.registered()
    async with by_asyncpg(postgres_url) as caller:
        await user_transactions.insert_arrival(caller, connection.address, WORDS)
        assert not await listener.wait(0.05)
    assert await listener.wait(5)
    listener.close()


async def test_x3_connections_that_cannot_be_used(connect: Connect, postgres_url: str) -> None:
    address = (await connect()).address
    with pytest.raises(ConfigurationError, match=r"builtins\.object cannot be used; give an asyncpg"):
        user_transactions.insert_arrival_sync(object(), address, WORDS)
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:
        with pytest.raises(ConfigurationError, match="a pool has no transaction"):
            await user_transactions.insert_arrival(pool, address, WORDS)
    lite = sqlalchemy.create_engine("sqlite://")
    with lite.begin() as caller, pytest.raises(ConfigurationError, match="leads to a sqlite database"):
        user_transactions.insert_arrival_sync(caller, address, WORDS)
    lite.dispose()
    async with by_asyncpg(postgres_url) as caller:
        with pytest.raises(ConfigurationError, match="may not use the schema 'nowhere'"):
            await user_transactions.insert_arrival(
                caller, PostgresAddress.parse(postgres_url, "nowhere"), WORDS
            )
