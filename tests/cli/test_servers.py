"""Every command works on a store on a server as it does on a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Cli, application_at
from tests.cli.tree import CALLS, WITHOUT_STORE, call

DIFFERENT = {
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
    for path in [path for path in CALLS if path not in WITHOUT_STORE]:
        here, there = (
            cli(*call(path, "shop", "sqlite:///shop.db")),
            cli(*call(path, "served", url)),
        )
        assert "Traceback" not in there.out + there.err, there
        if path not in DIFFERENT:
            codes[path] = here.code, there.code
    assert {path: both for path, both in codes.items() if both[0] != both[1]} == {}


@pytest.mark.parametrize("server", ["redis_url", "postgres_url"])
def test_a_backup_names_the_servers_own_tools(
    cli: Cli, tmp_path: Path, request: pytest.FixtureRequest, server: str
) -> None:
    ran = cli("db", "backup", "copy", "--url", request.getfixturevalue(server))
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert ("redis-cli" if server == "redis_url" else "pg_dump") in ran.err
    assert not (tmp_path / "copy").exists()
