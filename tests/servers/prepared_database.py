"""A PostgreSQL database that is reset to its prepared state after every test.

Creating a store's tables takes a hundred milliseconds, and dropping them forty. Emptying the tables that
a test filled takes a few. That matters for a suite of seven hundred tests."""

from __future__ import annotations

import psycopg
from psycopg import sql

from tests.servers.postgres import TERMINATE_CONNECTIONS_SQL, Postgres

DATABASE = "prepared"
TOO_MUCH = 4_000_000
"""Bytes of dead rows above which a table is truncated: the next test would have to read past them.
Truncating takes ten times longer."""

TABLES = """
SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'remembered')
"""
CREATE_RESET_FUNCTION = """
CREATE FUNCTION remembered.rewind() RETURNS void LANGUAGE plpgsql
SET session_replication_role = replica AS $$ -- in any order, and no triggers
BEGIN
    IF (SELECT sum(pg_relation_size(name::regclass)) FROM unnest({names}::text[]) AS name) > {too_much} THEN
        TRUNCATE {tables};
    ELSE
        {deletes}
    END IF;
    {inserts}
    PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, start_value),
        last_value IS NOT NULL) FROM remembered.sequences;
END $$
"""


class PreparedDatabase:
    """A prepared database. `url` is a new database; the caller prepares it before it calls `remember`."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._client: psycopg.Connection | None = None
        self.url = server.url_of(DATABASE)
        with server.client() as client:
            client.execute(f"CREATE DATABASE {DATABASE}")

    def remember(self) -> None:
        """Records the prepared state. A connection stays open, so that the reset is planned only once."""
        client = psycopg.connect(self.url, autocommit=True, connect_timeout=5)
        client.execute("CREATE SCHEMA remembered")
        client.execute("CREATE TABLE remembered.sequences AS TABLE pg_sequences")
        tables = [sql.Identifier(*row) for row in client.execute(TABLES).fetchall()]
        deletes = [sql.SQL("DELETE FROM {};").format(table) for table in tables]
        inserts = []
        for number, table in enumerate(tables):
            copy = sql.Identifier("remembered", f"table_{number}")
            if client.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(copy, table)).rowcount:
                again = sql.SQL("INSERT INTO {} OVERRIDING SYSTEM VALUE TABLE {};")
                inserts.append(again.format(table, copy))
        client.execute(
            sql.SQL(CREATE_RESET_FUNCTION).format(
                names=sql.Literal([table.as_string(client) for table in tables]),
                too_much=sql.Literal(TOO_MUCH),
                tables=sql.SQL(", ").join(tables),
                deletes=sql.SQL(" ").join(deletes),
                inserts=sql.SQL(" ").join(inserts),
            )
        )
        self._client = client

    def rewind(self) -> None:
        """Disconnects all clients, and resets the database to the prepared state."""
        assert self._client is not None, "nothing was remembered"
        self._client.execute(TERMINATE_CONNECTIONS_SQL)
        self._client.execute("SELECT remembered.rewind()")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
