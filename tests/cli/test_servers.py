"""Every command works on a store on a server as it does on a file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, application_at
from tests.cli.tree import CALLS, MAKING, NAMES_ONLY_A_GROUP, PLANNING, WITHOUT_STORE, call
from tests.servers.program import HOST
from tests.servers.redis import Redis
from tidemill.stores.postgres import PostgresStore

SERVING = {"web"}
"""It does not end by itself."""

DIFFERENT = {
    "bench": "it measures the embedded store",
    "db backup": "a server has tools of its own for it, and they are named",
    "db copy": "the other one's copy is there by then",
    "doctor": "it finds what is wrong with a server of the tests",
}


@pytest.mark.parametrize("server", ["redis_url", "postgres_url"])
def test_every_command(cli: Cli, tmp_path: Path, request: pytest.FixtureRequest, server: str) -> None:
    """The same arguments, the same exit code."""
    url: str = request.getfixturevalue(server)
    application_at(tmp_path, "served", url)
    codes: dict[str, tuple[int, int]] = {}
    for path in [path for path in CALLS if path not in WITHOUT_STORE | SERVING]:
        here, there = (
            cli(*call(path, "shop", "sqlite:///shop.db")),
            cli(*call(path, "served", url)),
        )
        assert "Traceback" not in there.out + there.err, there
        if path not in DIFFERENT:
            codes[path] = here.code, there.code
    assert {path: both for path, both in codes.items() if both[0] != both[1]} == {}


@pytest.mark.parametrize("server", ["redis_url", "postgres_url"])
def test_a_dashboard_is_served_until_it_is_told_to_stop(
    cli: Cli, tmp_path: Path, request: pytest.FixtureRequest, server: str
) -> None:
    application_at(tmp_path, "served", request.getfixturevalue(server))
    command = [sys.executable, "-m", "tidemill", "web", "served:app", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        assert "/sign-in/" in serving.stderr.readline()
        serving.terminate()
        assert (serving.wait(timeout=30), serving.stderr.read()) == (0, "")


@pytest.mark.parametrize("server", ["redis_url", "postgres_url"])
def test_a_backup_names_the_servers_own_tools(
    cli: Cli, tmp_path: Path, request: pytest.FixtureRequest, server: str
) -> None:
    url: str = request.getfixturevalue(server)
    application_at(tmp_path, "served", url)
    cli(*call("enqueue", "served", url))
    ran = cli("db", "backup", "copy", "--url", url)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert ("redis-cli" if server == "redis_url" else "pg_dump") in ran.err
    assert not (tmp_path / "copy").exists()


READING = [path for path in CALLS if path not in MAKING | WITHOUT_STORE | PLANNING | NAMES_ONLY_A_GROUP]


def test_looking_makes_no_tables(cli: Cli, tmp_path: Path, postgres_url: str) -> None:
    """A mistyped schema is told, as a mistyped file is."""
    url = f"{postgres_url}?schema=mistyped"
    application_at(tmp_path, "served", url)
    for path in READING:
        ran = cli(*call(path, "served", url))
        told = ran.out if path == "doctor" else ran.err
        assert ran.code == 1, (path, ran)
        assert "there is no store yet" in told, (path, ran)
    planned = cli(*call("plan", "served", url))
    assert (planned.code, "nothing waits" in planned.err) == (0, True)
    assert not asyncio.run(_is_made(url))
    cli(*call("enqueue", "served", url))
    assert cli("queues", "--url", url).code == 0


async def _is_made(url: str) -> bool:
    store = PostgresStore(url)
    try:
        return await store.is_made()
    finally:
        await store.close()


UNUSABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "a wrong password": ({"requirepass": "right"}, "redis://:sk-wrong@{server}/0", "password"),
    "an evicting server": (
        {"maxmemory": "64mb", "maxmemory_policy": "allkeys-lru"},
        "redis://{server}/0",
        "evict",
    ),
    "no such database": ({}, "redis://{server}/99", "has no database 99"),
}


@pytest.mark.parametrize("trouble", UNUSABLE)
def test_x7_a_server_that_is_set_up_wrongly_is_one_bad_finding(cli: Cli, trouble: str) -> None:
    """Whoever reads what the doctor says, as a program does, finds it there."""
    settings, url, says = UNUSABLE[trouble]
    with Redis(**settings) as server:
        url = url.format(server=f"{HOST}:{server.port}")
        _one_bad_finding(cli, url, f"{HOST}:{server.port}", says)


def test_x7_a_database_that_is_not_there_is_one_bad_finding(cli: Cli, postgres_url: str) -> None:
    _one_bad_finding(cli, f"{postgres_url}_not", HOST, "there is no such database")


def test_x7_a_server_that_is_not_there_is_named_once(cli: Cli) -> None:
    with Redis() as server:
        place = f"{HOST}:{server.port}"
    _one_bad_finding(cli, f"redis://{place}/0?timeout=0.5", place, "cannot be reached")


def _one_bad_finding(cli: Cli, url: str, place: str, says: str) -> None:
    told, read = cli("doctor", "--url", url), cli("doctor", "--url", url, "--json")
    assert (told.code, told.err, read.code, read.err) == (1, "", 1, "")
    assert told.out.startswith("bad  store: ")
    (found,) = read.json["findings"]
    assert (found["about"], found["level"]) == ("store", "bad")
    assert says in found["says"]
    assert found["says"].count(place) == 1, found
    assert "sk-wrong" not in told.out + read.out
