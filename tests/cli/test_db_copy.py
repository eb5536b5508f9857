"""`db copy` from one file into another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.support import Cli
from tests.docs.pages import page

AT = ("--app", "shop:app")
COPY = ("db", "copy", "sqlite:///other.db", *AT)


def test_a_copy_is_complete(cli: Cli) -> None:
    jobs = [cli.send(to) for to in ("a", "b")]
    result = cli(*COPY)
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "copied 2 jobs, 0 flows, 0 schedules, 0 records, 1 queue, 0 pools, 0 arrivals and 0 known ids\n"
    )
    for job in jobs:
        copied = cli("jobs", "show", job, "--url", "sqlite:///other.db", "--json").json
        assert copied == cli("jobs", "show", job, *AT, "--json").json


def test_json_output(cli: Cli) -> None:
    cli.send("a")
    found = cli(*COPY, "--json").json
    assert (found["jobs"], found["differences"]) == (1, [])


def test_a_target_that_is_not_empty_is_refused(cli: Cli) -> None:
    cli.send("a")
    cli(*COPY)
    cli.send("b")
    result = cli(*COPY)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert "not empty" in result.err
    assert "--resume" in result.err
    assert cli(*COPY, "--resume").code == 0


def test_the_documentation_page_is_true(cli: Cli) -> None:
    cli.send("a")
    commands = re.findall(r"^tidemill (.+)$", page("how-to/move-to-another-store.md"), re.MULTILINE)
    for command in commands:
        moved = command.replace("redis://cache.internal:6379/0", "sqlite:///moved.db")
        result = cli(*moved.replace("jobs.db", "shop.db").split())
        assert result.code == 0, result
    assert "mail" in result.out


def test_a_memory_target_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli.send("a")
    result = cli("db", "copy", "memory://", *AT)
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert "memory:// is always empty" in result.err
    assert [path.name for path in tmp_path.glob("*.db")] == ["shop.db"]


@pytest.mark.parametrize("server", ["redis_url", "postgres_url"])
def test_a_copy_to_a_server_and_back_is_equal(cli: Cli, request: pytest.FixtureRequest, server: str) -> None:
    """No job is lost."""
    url: str = request.getfixturevalue(server)
    for to in ("a", "b"):
        cli.send(to)
    cli("queues", "pause", "mail", "--reason", "moving", *AT)
    assert cli("db", "copy", url, *AT).code == 0
    assert cli("db", "copy", "sqlite:///back.db", "--url", url).code == 0
    stores = (AT, ("--url", url), ("--url", "sqlite:///back.db"))
    jobs = [cli("jobs", *store, "--json").json for store in stores]
    assert jobs[0] == jobs[1] == jobs[2]
    queues = [cli("queues", "info", "mail", *store, "--json").json | {"latency": 0} for store in stores]
    assert queues[0] == queues[1] == queues[2]
