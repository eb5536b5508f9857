"""Every command works on a server store as on a file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_tree import (
    CALLS,
    CREATING_THE_STORE,
    GROUPS_WITHOUT_COMMAND,
    NEEDING_NO_STORE,
    WITHOUT_STORE,
    call,
)
from tests.cli.support import Cli, application_at
from tests.servers.program import HOST
from tests.servers.redis import Redis
from tidemill.stores.postgres import PostgresStore

SERVING = {"web"}
"""Commands that do not end by themselves."""

DIFFERENT = {
    "bench": "it measures the embedded store",
    "db backup": "a server has tools of its own for it, and they are named",
    "db copy": "the other one's copy is there by then",
    "doctor": "it finds what is wrong with a server of the tests",
}


@pytest.mark.parametrize("server", ["redis_url", "postgres_url"])
def test_every_command_runs(cli: Cli, tmp_path: Path, request: pytest.FixtureRequest, server: str) -> None:
    """The arguments and exit codes are the same."""
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
def test_a_dashboard_is_served_until_it_is_stopped(
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
def test_a_backup_names_the_tools_of_the_server(
    cli: Cli, tmp_path: Path, request: pytest.FixtureRequest, server: str
) -> None:
    url: str = request.getfixturevalue(server)
    application_at(tmp_path, "served", url)
    cli(*call("enqueue", "served", url))
    result = cli("db", "backup", "copy", "--url", url)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert ("redis-cli" if server == "redis_url" else "pg_dump") in result.err
    assert not (tmp_path / "copy").exists()


READING = [
    path
    for path in CALLS
    if path not in CREATING_THE_STORE | WITHOUT_STORE | NEEDING_NO_STORE | GROUPS_WITHOUT_COMMAND
]


def test_reading_creates_no_tables(cli: Cli, tmp_path: Path, postgres_url: str) -> None:
    """A mistyped schema is reported like a mistyped file."""
    url = f"{postgres_url}?schema=mistyped"
    application_at(tmp_path, "served", url)
    for path in READING:
        result = cli(*call(path, "served", url))
        output = result.out if path == "doctor" else result.err
        assert result.code == 1, (path, result)
        assert "there is no store yet" in output, (path, result)
    planned = cli(*call("plan", "served", url))
    assert (planned.code, "no jobs and no workers" in planned.err) == (0, True)
    assert not asyncio.run(_is_made(url))
    cli(*call("enqueue", "served", url))
    assert cli("queues", "--url", url).code == 0


async def _is_made(url: str) -> bool:
    store = PostgresStore(url)
    try:
        return await store.is_created()
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
def test_x7_a_misconfigured_server_is_one_bad_finding(cli: Cli, trouble: str) -> None:
    """A program that reads the doctor's JSON finds it there."""
    settings, url, says = UNUSABLE[trouble]
    with Redis(**settings) as server:
        url = url.format(server=f"{HOST}:{server.port}")
        _one_bad_finding(cli, url, f"{HOST}:{server.port}", says)


def test_x7_a_missing_database_is_one_bad_finding(cli: Cli, postgres_url: str) -> None:
    _one_bad_finding(cli, f"{postgres_url}_not", HOST, "there is no such database")


def test_x7_an_unreachable_server_is_named_once(cli: Cli) -> None:
    with Redis() as server:
        place = f"{HOST}:{server.port}"
    _one_bad_finding(cli, f"redis://{place}/0?timeout=0.5", place, "cannot be reached")


def _one_bad_finding(cli: Cli, url: str, place: str, says: str) -> None:
    output, read = cli("doctor", "--url", url), cli("doctor", "--url", url, "--json")
    assert (output.code, output.err, read.code, read.err) == (1, "", 1, "")
    assert output.out.startswith("bad  store: ")
    (found,) = read.json["findings"]
    assert (found["subject"], found["level"]) == ("store", "bad")
    assert says in found["message"]
    assert found["message"].count(place) == 1, found
    assert "sk-wrong" not in output.out + read.out
