"""Runs the examples of the PostgreSQL pages on a real server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.docs.page_runner import code_blocks, run_page
from tests.docs.pages import first_column, page, section
from tidemill.stores.postgres import administration, migrations
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.connection import PostgresConnection

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres


DEPLOY = page("how-to/deploy-on-postgresql.md")
COMMIT = page("how-to/transactional-enqueue.md")


def test_a_job_commits_with_the_rows(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    assert run_page(COMMIT, tmp_path) == 2
    sql = next(body for language, body in code_blocks(COMMIT) if language == "sql")
    with psycopg.connect(postgres_url, autocommit=True) as client:
        assert client.execute("SELECT id, paid FROM orders").fetchall() == [(1, True)]
        for statement in sql.split(";"):
            client.execute(statement.encode())
        assert client.execute("SELECT payload FROM tidemill.arrivals").fetchall() == [('{"order": 3}',)]


def test_the_options_an_arrival_may_have_are_named() -> None:
    from tidemill.worker.admitter import ArrivalOptions

    named = re.search(r"options \((.*?)\), and an id", COMMIT, re.DOTALL)
    assert named
    assert re.findall(r"`(\w+)`", named[1]) == list(ArrivalOptions.__struct_fields__)


async def test_the_user_of_the_page_may_open_a_store(postgres_server: Postgres, postgres_url: str) -> None:
    sql = next(body for language, body in code_blocks(DEPLOY) if language == "sql")
    with postgres_server.client() as client:
        for statement in sql.split(";")[:-1]:
            client.execute(statement.encode())
        connection = PostgresConnection(
            PostgresAddress.parse(postgres_url.replace("postgres@", "tidemill@")), None
        )
        try:
            await connection.open()
            assert (await administration.describe(connection)).schema == migrations.newest_version()
        finally:
            await connection.close()
            client.execute("DROP SCHEMA tidemill CASCADE; DROP ROLE tidemill")


def test_the_options_of_the_url_are_named() -> None:
    assert first_column(section(DEPLOY, "The URL")) == ["schema", "connections"]
    address = PostgresAddress.parse("postgresql://h/d?schema=other&connections=3")
    assert (address.schema, address.connections) == ("other", 3)
    assert f"PostgreSQL {migrations.OLDEST_SERVER_VERSION} or newer" in DEPLOY


def test_the_page_dumps_as_the_store_says(tmp_path: Path) -> None:
    connection = PostgresConnection(PostgresAddress.parse("postgresql://h/shop"), None)
    message = str(administration.refuse_backup(connection, tmp_path / "jobs.dump"))
    assert "pg_dump --format=custom --schema=tidemill --file=jobs.dump" in message
    assert "pg_dump --format=custom --schema=tidemill --file=jobs.dump shop" in DEPLOY
