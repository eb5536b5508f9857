"""A prepared database has the tables of a store, and nothing that an earlier test put there."""

from __future__ import annotations

import psycopg
import pytest


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_finds_the_tables_as_they_were_prepared(turn: str, prepared_postgres_url: str) -> None:
    with psycopg.connect(prepared_postgres_url, autocommit=True) as client:
        versions = client.execute("SELECT count(*) FROM tidemill.migrations").fetchone()
        assert versions is not None
        assert versions[0] > 0
        client.execute("DELETE FROM tidemill.migrations")
        row = client.execute(
            "INSERT INTO tidemill.arrivals (id, task, payload) VALUES ('a', 't', '{}') RETURNING seq"
        ).fetchone()
        assert row == (1,), "its numbers begin anew too"
