"""A PostgreSQL database that goes back, after every test, to what it was when it was prepared.

Making a store's tables anew takes a hundred milliseconds, and dropping them forty; emptying those that
a test filled takes a few. A suite of seven hundred tests notices.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from tests.servers.postgres import SEND_AWAY, Postgres

DATABASE = "prepared"
TOO_MUCH = 4_000_000
"""Bytes of rows that were deleted: the next test would read past them. Truncating takes ten times longer."""

TABLES = """
SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'remembered')
"""
REWIND = """
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


class Rewinding:
    """`url` is a database of the server that somebody else prepares, between its creation and `remember`."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._client: psycopg.Connection | None = None
        self.url = server.url_of(DATABASE)
        with server.client() as client:
            client.execute(f"CREATE DATABASE {DATABASE}")

    def remember(self) -> None:
        """A connection stays open for it: what takes us back is planned once."""
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
            sql.SQL(REWIND).format(
                names=sql.Literal([table.as_string(client) for table in tables]),
                too_much=sql.Literal(TOO_MUCH),
                tables=sql.SQL(", ").join(tables),
                deletes=sql.SQL(" ").join(deletes),
                inserts=sql.SQL(" ").join(inserts),
            )
        )
        self._client = client

    def rewind(self) -> None:
        """Whoever is still connected is sent away first."""
        assert self._client is not None, "nothing was remembered"
        self._client.execute(SEND_AWAY)
        self._client.execute("SELECT remembered.rewind()")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
