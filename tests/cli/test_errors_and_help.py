"""Every error is one sentence on stderr and an exit code; help is fast."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.support import Cli
from tidemill import Tidemill
from tidemill.cli import USAGE_ERROR_CODE
from tidemill.cli.root import root

WRONG: list[tuple[list[str], str]] = [
    (["jobs"], "say which store: --app module:app"),
    (["jobz"], "no such command 'jobz'; did you mean jobs?"),
    (["audit"], "link, plan, pools, queues, schedules, token, top, up, web, webhooks, worker (see"),
    (["jobs", "shw"], "no such command 'shw'; did you mean show? there are archive, cancel,"),
    (["queues", "puse"], "no such command 'puse'; did you mean pause or unset?"),
    (["db", "chek"], "no such command 'chek'; did you mean check?"),
    (["jobs", "--app", "shop"], "is written module:app, such as shop:app"),
    (["jobs", "--app", "shop:"], "'shop:' is not of the form module:app, such as myproject.jobs:app"),
    (["jobs", "--app", "nothing:app"], "module 'nothing' was not found in {here} nor among"),
    (["jobs", "--app", "nothing.jobs:app"], "module 'nothing' was not found in {here} nor among"),
    (["jobs", "--app", "needy:app"], "module 'needy' could not be imported: ModuleNotFoundError"),
    (["worker", "shop.py:app"], "'shop.py' is a file, not a module; write shop:app"),
    (["worker", "jobs/shop.py:app"], "write jobs.shop:app"),
    (["worker", "shop.py"], "'shop.py' is a file, not a module; write shop:app"),
    (["worker"], "say which application, such as myproject.jobs:app: here, as TIDEMILL_APP, or as app in"),
    (["worker", "shop:application"], "module 'shop' has no 'application'; write shop:app"),
    (["worker", "needy:app"], "No module named 'elsewhere'"),
    (["worker", "bare:app"], "module 'bare' has no 'app'; it has no Tidemill application"),
    (["jobs", "--app", "broken:app"], "ZeroDivisionError: division by zero at"),
    (["jobs", "--app", "confused:app"], "AttributeError"),
    (["jobs", "--app", "shop:store"], "module 'shop' has no 'store'"),
    (["jobs", "--app", "shop:not_an_app"], "is a int, not a Tidemill application; write shop:app"),
    (["jobs", "--url", "amqp://:secret@host"], "not available in this version"),
    (["jobs", "--url", "memory://"], "memory:// is always empty here"),
    (["doctor", "--url", "memory://"], "memory:// is always empty here"),
    (["bench", "--url", "redis://:secret@host:6379/0"], "bench measures the embedded store"),
    (["bench", "--url", "postgresql://host/jobs"], "name a sqlite:/// file, or memory://"),
    (["jobs", "--url", "sqlite:///a.db", "--state", "lost"], "'lost' is not one of"),
    (["jobs", "--url", "sqlite:///a.db", "--since", "soon"], "'soon' is neither a duration nor a time"),
    (["jobs", "retry", "--url", "sqlite:///a.db"], "say which jobs: their ids, or a filter"),
    (["queues", "pause", "q", "--url", "sqlite:///a.db", "--until", "noon"], "'noon' is not a time"),
    (
        ["queues", "pause", "q", "--url", "sqlite:///a.db", "--until", "2100-01-01", "--for", "1h"],
        "not both",
    ),
    (["worker", "shop:app", "--queues", "a=0"], "'a=0' is not NAME or NAME=WEIGHT"),
    (["worker", "shop:app", "--queues", ","], "names no queue"),
    (["worker", "shop:app", "--concurrency", "0"], "must be a whole number of 1 or more, is '0'"),
    (["jobs", "--url", "sqlite:///a.db", "--limit", "x"], "must be a whole number from 1 to 10000, is 'x'"),
    (["link", "--url", "sqlite:///a.db", "--at", "mill.example"], "must begin with https:// or http://"),
    (["link", "--url", "sqlite:///a.db", "--at", "https://"], "and name a host, is 'https://'"),
    (["worker", "shop:app", "--lease", "0"], "lease: must be above 0 seconds"),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG, ids=str)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    cli: Cli, tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "confused.py").write_text("None.missing\n")
    (tmp_path / "needy.py").write_text("import elsewhere\n")
    (tmp_path / "bare.py").write_text("")
    result = cli(*arguments)
    assert result.code == USAGE_ERROR_CODE
    assert not result.out
    assert result.err.startswith("tidemill: ")
    assert says.format(here=tmp_path) in result.err
    assert len(result.err.splitlines()) == 1
    assert "secret" not in result.err


def test_the_working_directory_is_importable(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike `python -m`, an installed program does not have it on its path."""
    cli.make_store()
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    assert cli("jobs", "--app", "shop:app").code == 0


def test_the_default_store_is_found_in_the_folder(cli: Cli) -> None:
    """An application without a URL has a default store; so has a command, once that store exists."""
    assert "there is no tidemill.db here either" in cli("jobs").err
    app = Tidemill()
    app.run_sync(app.client.store())
    app.close_sync()
    assert cli("jobs", "--json").json["jobs"] == []


def test_a_toml_file_names_the_store(cli: Cli, tmp_path: Path) -> None:
    cli.make_store()
    (tmp_path / "tidemill.toml").write_text('url = "sqlite:///shop.db"\n')
    assert cli("jobs").code == 0
    (tmp_path / "tidemill.toml").write_text("url = 7\n")
    result = cli("jobs")
    assert (result.code, len(result.err.splitlines())) == (2, 1)


def test_help_imports_no_store_and_no_command() -> None:
    program = "import sys; from tidemill.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Run a worker for an application" in found.stdout
    imported = set(found.stdout.split())
    assert not {"rich", "structlog", "apsw", "uvloop", "uvicorn", "starlette", "websockets"} & imported
    context = click.Context(root)
    commands = [root.get_command(context, name) for name in root.list_commands(context)]
    modules = {command.callback.__module__ for command in commands if command and command.callback}
    assert {"tidemill.cli.jobs", "tidemill.cli.tokens", "tidemill.cli.notifications"} <= modules
    assert not modules & imported


@pytest.mark.parametrize("name", root.list_commands(click.Context(root)))
def test_the_command_list_matches_the_help_of_each_command(cli: Cli, name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert f" {name} {command.get_short_help_str(limit=200)}" in " ".join(cli("--help").out.split())
    assert cli(name, "--help").code == 0


@pytest.mark.usefixtures("cli")
def test_a_closed_pipe_is_no_error(cli: Cli) -> None:
    cli.make_store()
    command = [sys.executable, "-m", "tidemill", "jobs", "--app", "shop:app", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 0


@pytest.mark.parametrize("group", [(), ("db",)], ids=str)
def test_a_group_alone_shows_its_help(cli: Cli, group: tuple[str, ...]) -> None:
    result = cli(*group)
    assert (result.code, result.out) == (USAGE_ERROR_CODE, "")
    assert result.err.startswith(f"Usage: {' '.join(('tidemill', *group))} ")


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version").out.startswith("tidemill 0.")


def test_the_help_of_until_idle_names_the_jobs_that_stay(cli: Cli) -> None:
    output = " ".join(cli("worker", "--help").out.split())
    leaves = "scheduled jobs and retries that are not due stay."
    assert f"Stop when no job is ready or running here; {leaves}" in output


@pytest.mark.parametrize("name", ["concurrency", "lease", "grace", "poll"])
def test_the_defaults_in_the_help_are_the_real_defaults(cli: Cli, name: str) -> None:
    about = " ".join(cli("worker", "--help").out.partition(f"--{name}")[2].split())
    default = re.search(r"Default: (\d+)s?\.", about)
    assert default
    assert float(default[1]) == getattr(Tidemill("memory://").worker_options(queues={"q": 1}), name)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_that_is_not_utf_8_gets_escapes(cli: Cli, encoding: str) -> None:
    """Characters that it cannot write are escaped; JSON stays valid."""
    name = "王小明 é 🌊"
    cli.send(name)
    for arguments in (["enqueue", "--help"], ["jobs"], ["jobs", "--json"]):
        command = [sys.executable, "-m", "tidemill", *arguments]
        environment = os.environ | {"PYTHONIOENCODING": encoding, "TIDEMILL_APP": "shop:app"}
        result = subprocess.run(command, capture_output=True, timeout=60, check=True, env=environment)
    (job,) = json.loads(result.stdout.decode(encoding))["jobs"]
    assert job["payload"] == {"to": name}


def test_reading_does_not_turn_an_empty_file_into_a_database(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    result = cli("db", "info", "--url", "sqlite:///empty.db")
    assert (result.code, result.out) == (1, "")
    assert "there is no database in" in result.err
    assert (tmp_path / "empty.db").read_bytes() == b""


def test_an_unexpected_error_prints_its_cause(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of an exception group alone only gives a number."""

    def burst(_: Tidemill) -> None:
        raise ExceptionGroup("unhandled", [ExceptionGroup("inner", [ZeroDivisionError("by nothing")])])

    monkeypatch.setattr("tidemill.cli.store_options.require_shared_store", burst)
    result = cli("queues", "--app", "shop:app")
    assert (result.code, result.out, result.err) == (1, "", "tidemill: ZeroDivisionError: by nothing\n")
