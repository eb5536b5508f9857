"""Every error is one sentence on stderr and an exit code; help comes fast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.support import Cli
from tidemill.cli import FAILURE, USAGE
from tidemill.cli.root import root

WRONG: list[tuple[list[str], str]] = [
    (["jobs"], "say which store: --app module:app"),
    (["jobz"], "No such command 'jobz'"),
    (["jobs", "--app", "shop"], "'shop' is not of the form module:app"),
    (["jobs", "--app", "nothing:app"], "module 'nothing' was not found in {here} nor among"),
    (["jobs", "--app", "nothing.jobs:app"], "module 'nothing' was not found in {here} nor among"),
    (["jobs", "--app", "needy:app"], "module 'needy' could not be imported: ModuleNotFoundError"),
    (["worker", "shop.py:app"], "'shop.py' is a file, not a module; write shop:app"),
    (["worker", "jobs/shop.py:app"], "write jobs.shop:app"),
    (["worker", "shop:application"], "module 'shop' has no 'application'; write shop:app"),
    (["worker", "needy:app"], "No module named 'elsewhere'"),
    (["worker", "bare:app"], "module 'bare' has no 'app'; it has no Tidemill application"),
    (["jobs", "--app", "broken:app"], "ZeroDivisionError: division by zero at"),
    (["jobs", "--app", "confused:app"], "AttributeError"),
    (["jobs", "--app", "shop:store"], "module 'shop' has no 'store'"),
    (["jobs", "--app", "shop:not_an_app"], "is a int, not a Tidemill application; write shop:app"),
    (["jobs", "--url", "redis://:secret@host"], "not available in this version"),
    (["jobs", "--url", "memory://"], "memory:// is always empty here"),
    (["doctor", "--url", "memory://"], "memory:// is always empty here"),
    (["jobs", "--url", "sqlite:///a.db", "--state", "lost"], "'lost' is not one of"),
    (["jobs", "--url", "sqlite:///a.db", "--since", "soon"], "'soon' is not a duration"),
    (["jobs", "retry", "--url", "sqlite:///a.db"], "Missing argument 'IDS...'"),
    (["queues", "pause", "q", "--url", "sqlite:///a.db", "--until", "noon"], "'noon' is not a time"),
    (
        ["queues", "pause", "q", "--url", "sqlite:///a.db", "--until", "2100-01-01", "--for", "1h"],
        "not both",
    ),
    (["worker", "shop:app", "--queues", "a=0"], "'a=0' is not NAME or NAME=WEIGHT"),
    (["worker", "shop:app", "--queues", ","], "names no queue"),
    (["worker", "shop:app", "--concurrency", "0"], "0 is not in the range"),
    (["worker", "shop:app", "--lease", "0"], "lease: must be above 0 seconds"),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG, ids=str)
def test_wrong_use_is_one_sentence_and_code_2(
    cli: Cli, tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "confused.py").write_text("None.missing\n")
    (tmp_path / "needy.py").write_text("import elsewhere\n")
    (tmp_path / "bare.py").write_text("")
    ran = cli(*arguments)
    assert ran.code == USAGE
    assert not ran.out
    assert ran.err.startswith("tidemill: ")
    assert says.format(here=tmp_path) in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "secret" not in ran.err


def test_a_store_that_cannot_be_used_is_one_sentence_and_code_1(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("dear diary, this is not a database at all")
    for url in ("sqlite:///missing/folder.db", "sqlite:///notes.db"):
        ran = cli("jobs", "--url", url)
        assert ran.code == FAILURE
        assert ran.err.startswith("tidemill: ")
        assert len(ran.err.splitlines()) == 1
        sick = cli("doctor", "--url", url)
        assert sick.code == FAILURE
        assert sick.out.startswith("bad  store: ")


LOOKING = (
    ("jobs",),
    ("jobs", "show", "x"),
    ("jobs", "retry", "x"),
    ("jobs", "cancel", "x"),
    ("queues",),
    ("queues", "pause", "x"),
    ("queues", "resume", "x"),
    ("doctor",),
)


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
@pytest.mark.parametrize("target", [("--url", "sqlite:///new.db"), ("--app", "shop:app")], ids=["url", "app"])
def test_only_a_worker_makes_a_database(
    cli: Cli, tmp_path: Path, command: tuple[str, ...], target: tuple[str, str]
) -> None:
    before = set(tmp_path.glob("*.db*"))
    ran = cli(*command, *target)
    assert ran.code == FAILURE
    said = ran.out if command == ("doctor",) else ran.err
    name = "new.db" if target[0] == "--url" else "shop.db"
    assert f"there is no database {tmp_path / name}: check the URL" in said
    assert len(said.splitlines()) == 1
    assert set(tmp_path.glob("*.db*")) == before == set()


def test_help_imports_no_store_and_no_command() -> None:
    program = "import sys; from tidemill.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Run a worker for an application" in found.stdout
    heavy = {"rich", "structlog", "apsw", "uvloop", "tidemill.cli.worker", "tidemill.cli.jobs"}
    assert not heavy & set(found.stdout.split())


@pytest.mark.parametrize("name", ["doctor", "jobs", "queues", "worker"])
def test_the_list_of_commands_says_what_the_commands_say(cli: Cli, name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert f" {name} {command.get_short_help_str(limit=200)}" in " ".join(cli("--help").out.split())
    assert cli(name, "--help").code == 0


def test_version(cli: Cli) -> None:
    assert cli("--version").out.startswith("tidemill 0.")


def test_until_idle_says_what_it_leaves(cli: Cli) -> None:
    said = " ".join(cli("worker", "--help").out.split())
    assert "Stop when nothing is ready or running; retries and delayed jobs that are not due stay." in said
