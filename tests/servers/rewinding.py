"""A PostgreSQL database that goes back, after every test, to what it was when it was prepared.

Making a store's tables anew takes a hundred milliseconds, and dropping them forty; emptying those that
a test filled takes a few. A suite of seven hundred tests notices.
"""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg import sql

from tests.servers.postgres import SEND_AWAY, Postgres

DATABASE = "prepared"

TABLES = """
SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'remembered')
"""
SEQUENCES = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, start_value),
    last_value IS NOT NULL) FROM remembered.sequences
"""


class Rewinding:
    """`url` is a database of the server that somebody else prepares, between its creation and `remember`."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self.url = server.url_of(DATABASE)
        with server.client() as client:
            client.execute(f"CREATE DATABASE {DATABASE}")

    def remember(self) -> None:
        with self._server.client(DATABASE) as client:
            client.execute("CREATE SCHEMA remembered")
            client.execute("CREATE TABLE remembered.sequences AS TABLE pg_sequences")
            client.execute("CREATE TABLE remembered.tables AS " + TABLES)
            client.execute(_for_each(client, "CREATE TABLE {copy} AS TABLE {table}"))

    def rewind(self) -> None:
        """Whoever is still connected is sent away first."""
        with self._server.client(DATABASE) as client:
            client.execute(SEND_AWAY)
            with client.transaction():
                client.execute("SET LOCAL session_replication_role = replica")  # any order, no triggers
                client.execute(_for_each(client, "DELETE FROM {table}"))
                client.execute(_for_each(client, "INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE {copy}"))
                client.execute(SEQUENCES)


def _for_each(client: psycopg.Connection, statement: LiteralString) -> sql.Composed:
    rows = client.execute("SELECT nspname, relname FROM remembered.tables").fetchall()
    return sql.SQL("; ").join(
        sql.SQL(statement).format(
            table=sql.Identifier(schema, name), copy=sql.Identifier("remembered", f"{schema}_{name}")
        )
        for schema, name in rows
    )
