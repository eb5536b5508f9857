"""An unusable server or schema is reported with what to do, without secrets (S1)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.stores.postgres.conftest import Connect
from tidemill.errors import (
    ConfigurationError,
    SchemaMismatch,
    StoreCorrupt,
    StoreReadOnly,
    StoreUnavailable,
    TidemillError,
)
from tidemill.stores.postgres import administration, connection_pool, migrations
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.connection import PostgresConnection

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres
    from tests.servers.redis import Redis


Role = Callable[[str], object]
"""Changes the settings of a user."""
SECRET = "s3cret%2Fword"  # noqa: S105 - a wrong one


async def opening(url: str, schema: str | None = None) -> TidemillError:
    """Returns the error of an attempt to open the store."""
    connection = PostgresConnection(PostgresAddress.parse(url, schema), None)
    with pytest.raises(TidemillError) as raised:
        await connection.open()
    await connection.close()
    assert SECRET not in str(raised.value)
    assert "s3cret" not in str(raised.value)
    return raised.value


async def test_wrong_host_and_port(postgres_server: Postgres) -> None:
    error = await opening(f"postgresql://someone:{SECRET}@127.0.0.1:1/tests")
    assert isinstance(error, StoreUnavailable)
    assert "PostgreSQL at 127.0.0.1:1/tests: the server cannot be reached" in str(error)
    error = await opening(f"postgresql://someone:{SECRET}@no-such-host.invalid/tests")
    assert isinstance(error, StoreUnavailable)
    assert "check host and port" in str(error)


async def test_wrong_password_and_database(postgres_server: Postgres) -> None:
    error = await opening(postgres_server.guarded_url.replace("open-sesame", SECRET))
    assert isinstance(error, ConfigurationError)
    assert "the user or the password is not accepted" in str(error)
    error = await opening(postgres_server.url_of("nowhere"))
    assert isinstance(error, ConfigurationError)
    assert "nowhere: there is no such database; create it" in str(error)


async def test_no_right_to_create_a_schema_names_the_grant(
    postgres_server: Postgres, postgres_url: str, connect: Connect
) -> None:
    with postgres_server.client() as client:
        client.execute("DROP ROLE IF EXISTS humble; CREATE ROLE humble LOGIN")
        humble = postgres_url.replace("postgres@", "humble@")
        error = await opening(humble)
        assert isinstance(error, ConfigurationError)
        assert 'CREATE SCHEMA tidemill AUTHORIZATION "humble"' in str(error)
        assert 'GRANT CREATE ON DATABASE "tests" TO "humble"' in str(error)
        client.execute("CREATE SCHEMA tidemill AUTHORIZATION humble")
        await (await connect(humble)).fetch("SELECT FROM tidemill.clock")
        client.execute("CREATE ROLE stranger LOGIN")
        try:
            error = await opening(postgres_url.replace("postgres@", "stranger@"))
            assert isinstance(error, ConfigurationError)
            assert "GRANT ALL ON SCHEMA tidemill" in str(error)
        finally:
            client.execute("DROP ROLE stranger; DROP SCHEMA tidemill CASCADE; DROP ROLE humble")


@pytest.fixture
def role(postgres_server: Postgres, postgres_url: str) -> Iterator[Role]:
    with postgres_server.client() as client:
        client.execute("CREATE ROLE humble LOGIN")
        client.execute("CREATE SCHEMA tidemill AUTHORIZATION humble")
        yield lambda settings: client.execute(f"ALTER ROLE humble {settings}")
        client.execute("DROP SCHEMA tidemill CASCADE; DROP ROLE humble")


async def test_settings_of_the_role_do_not_matter(role: Role, postgres_url: str, connect: Connect) -> None:
    """An administrator may have set them for people."""
    role("SET statement_timeout = '1ms'")
    role("SET lock_timeout = '1ms'")
    role("SET standard_conforming_strings = off")
    role("SET default_transaction_isolation = serializable")
    role("SET search_path = nowhere")
    connection = await connect(postgres_url.replace("postgres@", "humble@"))
    await connection.fetch("SELECT pg_sleep(0.005)")
    assert (await administration.describe(connection)).kind == "postgresql"
    await connection.close()


async def test_no_connection_left(role: Role, postgres_url: str) -> None:
    role("CONNECTION LIMIT 0")
    error = await opening(postgres_url.replace("postgres@", "humble@"))
    assert isinstance(error, StoreUnavailable)
    assert "no connection left; raise max_connections" in str(error)


async def test_something_else_listens(redis_server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "CONNECT_TIMEOUT_SECONDS", 0.3)
    error = await opening(f"postgresql://someone:{SECRET}@127.0.0.1:{redis_server.port}/tests")
    assert isinstance(error, StoreUnavailable)
    assert "cannot be reached (no server answered within 0.3 s); check host and port" in str(error)


async def test_a_database_that_may_only_be_read(postgres_server: Postgres, postgres_url: str) -> None:
    with postgres_server.client() as client:
        client.execute("ALTER DATABASE tests SET default_transaction_read_only = on")
        try:
            error = await opening(postgres_url)
        finally:
            client.execute("SET default_transaction_read_only = off")
            client.execute("ALTER DATABASE tests RESET default_transaction_read_only")
    assert isinstance(error, StoreReadOnly)
    assert "name the primary in the URL" in str(error)


async def test_a_server_that_is_too_old(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No old server is available; a higher required version makes this one too old."""
    monkeypatch.setattr(migrations, "OLDEST_SERVER_VERSION", 99)
    error = await opening(postgres_url)
    assert isinstance(error, ConfigurationError)
    assert "Tidemill needs 99 or newer" in str(error)


async def test_a_strange_encoding(postgres_server: Postgres) -> None:
    with postgres_server.client() as client:
        client.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
        try:
            error = await opening(postgres_server.url_of("latin"))
        finally:
            client.execute("DROP DATABASE latin")
    assert isinstance(error, ConfigurationError)
    assert "encoding LATIN1; create one with ENCODING 'UTF8'" in str(error)


async def test_a_newer_schema_and_foreign_tables_are_refused(connect: Connect, postgres_url: str) -> None:
    connection = await connect()
    await connection.fetch("INSERT INTO tidemill.migrations (version) VALUES (9000)")
    error = await opening(postgres_url)
    assert isinstance(error, SchemaMismatch)
    assert "has version 9000, this Tidemill knows up to" in str(error)
    await connection.fetch("CREATE SCHEMA shop")
    await connection.fetch("CREATE TABLE shop.orders (id int)")
    error = await opening(postgres_url, "shop")
    assert isinstance(error, StoreCorrupt)
    assert "name another with ?schema=" in str(error)


async def test_tls_that_the_server_does_not_have(postgres_url: str) -> None:
    error = await opening(postgres_url + "?sslmode=require")
    assert isinstance(error, ConfigurationError)
    assert "the server offers no TLS; set ssl = on there, or take sslmode out of the URL" in str(error)


async def test_an_unknown_option_is_refused(postgres_url: str) -> None:
    error = await opening(postgres_url + "?shema=jobs")
    assert isinstance(error, ConfigurationError)
    assert "shema" in str(error)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://u:p@h/d?schema=Big", "schema='Big' cannot be used"),
        ("postgresql://u:p@h/d?schema=pg_x", "schema='pg_x' cannot be used"),
        ("postgresql://u:p@h/d?sslrootcert=/no/ca.pem", "sslrootcert=/no/ca.pem is not there"),
        ("postgresql://u:p@h/d?connections=many", "connections='many' must be a whole number"),
        ("postgresql://u:s3cret/word@h/d", "as %40, %2F"),
        ("postgresql://u:s3cret#word@h/d", "as %40, %2F"),
        ("postgresql://u:s3cret?word@h/d", "as %40, %2F"),
        ("postgresql://u:s3cret?word=w@h/d", "as %40, %2F"),
        ("postgresql://u:s3cret[word@h/d", "as %40, %2F"),
        ("postgresql://u:p@h:s3cret/d", "as %40, %2F"),
    ],
)
def test_urls_that_cannot_be_read(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        PostgresAddress.parse(url)
    assert message in str(raised.value)
    assert "s3cret" not in str(raised.value)


async def test_many_may_open_an_empty_database_at_once(connect: Connect) -> None:
    """The migrations run once."""
    every = await asyncio.gather(*(connect() for _ in range(8)))
    rows = await every[0].fetch("SELECT version FROM tidemill.migrations")
    assert max(row["version"] for row in rows) == migrations.newest_version()


async def test_two_schemas_of_a_database_are_two_stores(connect: Connect) -> None:
    one, two = await connect(), await connect(schema="second")
    await two.fetch("UPDATE tidemill.clock SET skew = 5")
    assert [row["skew"] for row in await one.fetch("SELECT skew FROM tidemill.clock")] == [0]


def test_a_missing_extra_is_named() -> None:
    """The error names the command to run, and only appears if the URL needs the extra."""
    program = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from tidemill import Tidemill\n"
        "app = Tidemill('postgresql://u:s3cret@h/d')\n"
        "app.store"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = ended.stderr.splitlines()[-1]
    assert "needs the package asyncpg; run pip install 'tidemill[postgres]'" in last
    assert "s3cret" not in ended.stderr.replace(program, "")
