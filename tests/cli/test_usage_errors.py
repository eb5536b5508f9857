"""Every command in every broken environment: one sentence, the right exit code, no traceback, no change.

Commands are found by walking the tree, so a new command is tested too."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.chaos.small_disk import small_disk
from tests.cli.command_tree import (
    APPLICATION_ONLY,
    CALLS,
    COMMANDS,
    CREATING_THE_STORE,
    GROUPS_WITHOUT_COMMAND,
    NEEDING_NO_STORE,
    RUNNING,
    WITHOUT_STORE,
    call,
)
from tests.cli.support import Cli, CliResult, application_at
from tidemill.cli import FAILURE_CODE, USAGE_ERROR_CODE
from tidemill.stores.sqlite import connection, writer

CALLABLE = [path for path in COMMANDS if path not in GROUPS_WITHOUT_COMMAND]
ON_A_STORE = [path for path in CALLABLE if path not in WITHOUT_STORE]
APP_COMMANDS = [path for path in ON_A_STORE if path != "bench"]
"""`bench` opens no existing store: it measures on a new file."""

LOOKING = [path for path in ON_A_STORE if path not in CREATING_THE_STORE | NEEDING_NO_STORE]


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def is_one_sentence(result: CliResult, code: int) -> None:
    """Checks that stderr has one sentence. `doctor` reports a store's problem as a finding."""
    output = result.err or result.out
    assert result.code == code, output
    assert len(output.splitlines()) == 1, output
    assert output.startswith(("tidemill: ", "bad  store: "))
    assert "Traceback" not in result.out + result.err


def test_every_command_has_an_example() -> None:
    assert set(CALLS) == set(CALLABLE)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_help(cli: Cli, path: str) -> None:
    result = cli(*path.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"Usage: tidemill {path}")


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_has_help(path: str) -> None:
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"tidemill {path} {parameter.opts[0]} has no help"


@pytest.mark.parametrize("path", COMMANDS)
def test_an_unknown_option_is_refused(cli: Cli, tmp_path: Path, path: str) -> None:
    before = read_files(tmp_path)
    result = cli(*path.split(), *CALLS.get(path, ()), "--no-such-option")
    is_one_sentence(result, USAGE_ERROR_CODE)
    assert "--no-such-option" in result.err
    assert read_files(tmp_path) == before


@pytest.mark.parametrize("path", CALLABLE)
def test_missing_and_surplus_arguments_are_refused(cli: Cli, path: str) -> None:
    arguments = [each for each in COMMANDS[path].params if isinstance(each, click.Argument)]
    if any(argument.required for argument in arguments):
        is_one_sentence(cli(*path.split()), USAGE_ERROR_CODE)
    elif not any(argument.nargs == -1 for argument in arguments):
        is_one_sentence(cli(*path.split(), *["surplus"] * (len(arguments) + 1)), USAGE_ERROR_CODE)


@pytest.mark.parametrize("path", [name for name, it in COMMANDS.items() if isinstance(it, click.Group)])
def test_an_unknown_subcommand_is_refused(cli: Cli, path: str) -> None:
    result = cli(*path.split(), "surplus")
    is_one_sentence(result, USAGE_ERROR_CODE)
    assert "surplus" in result.err


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("nothing", "module 'nothing' was not found"),
        ("broken", "ZeroDivisionError: division by zero at"),
        ("unfinished", "SyntaxError"),
        ("needy", "No module named 'elsewhere'"),
        ("script", "ends the program when it is imported"),
        ("bare", "it has no Tidemill application"),
        ("twice", "tidemill: queue 'mail' is declared twice; put its settings into one app.queue(…) (/"),
        ("twice", "twice.py:4)"),
    ],
)
@pytest.mark.parametrize("path", APP_COMMANDS)
def test_a_module_without_an_application_is_refused(
    cli: Cli, tmp_path: Path, path: str, module: str, says: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "unfinished.py").write_text("def f(:\n")
    (tmp_path / "needy.py").write_text("import elsewhere\n")
    (tmp_path / "script.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "bare.py").write_text("")
    twice = "from tidemill import Tidemill\napp = Tidemill()\napp.queue('mail')\napp.queue('mail')\n"
    (tmp_path / "twice.py").write_text(twice)
    before = read_files(tmp_path)
    result = cli(*call(path, module, "sqlite:///new.db"))
    is_one_sentence(result, USAGE_ERROR_CODE)
    assert says in result.err
    assert read_files(tmp_path) == before


@pytest.mark.parametrize("path", ON_A_STORE)
@pytest.mark.parametrize("place", ["environment", "file", "damaged file"])
def test_an_invalid_setting_is_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, place: str
) -> None:
    if place == "environment":
        monkeypatch.setenv("TIDEMILL_WORKER_LEASE", "soon")
        says = "environment TIDEMILL_WORKER_LEASE: must be a number of seconds above 0, is 'soon'"
    else:
        (tmp_path / "tidemill.toml").write_text("[worker]\nlease = -1" if place == "file" else "[worker")
        says = "tidemill.toml"
    before = read_files(tmp_path)
    result = cli(*call(path, "shop", "sqlite:///shop.db"))
    is_one_sentence(result, USAGE_ERROR_CODE)
    assert result.err.startswith(f"tidemill: {says}")
    assert "shop" not in result.err  # the module that imports first is not the cause
    assert read_files(tmp_path) == before


@pytest.mark.parametrize("path", LOOKING)
def test_a_missing_database_is_not_created(cli: Cli, tmp_path: Path, path: str) -> None:
    application_at(tmp_path, "absent", "sqlite:///absent.db")
    before = read_files(tmp_path)
    result = cli(*call(path, "absent", "sqlite:///absent.db"))
    is_one_sentence(result, FAILURE_CODE)
    assert f"there is no database {tmp_path / 'absent.db'}: check the URL" in result.err + result.out
    assert read_files(tmp_path) == before


@pytest.mark.parametrize("path", [path for path in ON_A_STORE if path not in NEEDING_NO_STORE])
@pytest.mark.parametrize("file", ["missing/folder.db", "/proc/tidemill.db"], ids=["missing", "read-only"])
def test_a_missing_or_unwritable_folder_is_reported(cli: Cli, tmp_path: Path, path: str, file: str) -> None:
    application_at(tmp_path, "homeless", f"sqlite:///{file}")
    before = read_files(tmp_path)
    result = cli(*call(path, "homeless", f"sqlite:///{file}"))
    is_one_sentence(result, FAILURE_CODE)
    assert "makes it" not in result.err + result.out or "missing" not in file
    assert read_files(tmp_path) == before


def test_a_store_on_a_read_only_mount_is_reported(cli: Cli, tmp_path: Path) -> None:
    """It needs a real mount, since root ignores file modes. One test runs all commands, because mounting is
    slow."""
    cli.make_store()
    with small_disk(tmp_path / "disk", 4) as disk:
        shutil.copy(tmp_path / "shop.db", disk)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        application_at(tmp_path, "stuck", "sqlite:///disk/shop.db")
        for path in ON_A_STORE:
            result = cli(*call(path, "stuck", "sqlite:///disk/shop.db"))
            is_one_sentence(result, FAILURE_CODE)
            assert "disk/shop.db" in result.err + result.out, path


@pytest.mark.parametrize("path", APP_COMMANDS)
def test_a_file_that_is_no_database_is_reported(cli: Cli, tmp_path: Path, path: str) -> None:
    (tmp_path / "notes.db").write_text("dear diary, this is not a database at all")
    application_at(tmp_path, "diary", "sqlite:///notes.db")
    before = read_files(tmp_path)
    result = cli(*call(path, "diary", "sqlite:///notes.db"))
    is_one_sentence(result, FAILURE_CODE)
    assert "notes.db" in result.err + result.out
    assert read_files(tmp_path) == before


LOCK = """
import sys, apsw
connection = apsw.Connection("shop.db")
connection.pragma("locking_mode", "exclusive")
connection.execute("BEGIN EXCLUSIVE")
connection.pragma("user_version", connection.pragma("user_version"))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another process holds the whole file, and the busy timeout is short."""
    cli.make_store()
    for module in (connection, writer):
        monkeypatch.setattr(module, "BUSY_TIMEOUT_SECONDS", 0.05)
    holder = subprocess.Popen([sys.executable, "-c", LOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield
        holder.communicate()


@pytest.mark.parametrize("path", APP_COMMANDS)
@pytest.mark.usefixtures("locked")
def test_a_locked_store_is_reported(cli: Cli, path: str) -> None:
    result = cli(*call(path, "shop", "sqlite:///shop.db"))
    is_one_sentence(result, FAILURE_CODE)
    assert "another process held the database" in result.err + result.out


@pytest.fixture(scope="module")
def dead_server() -> Iterator[str]:
    """Yields an address without a server: the port is bound but does not listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("url", ["redis://{}/0?timeout=0.1", "postgresql://ann@{}/none?timeout=0.5"])
@pytest.mark.parametrize("path", APP_COMMANDS)
def test_an_unreachable_server_is_reported(
    cli: Cli, tmp_path: Path, dead_server: str, path: str, url: str
) -> None:
    application_at(tmp_path, "far", url.format(dead_server))
    before = read_files(tmp_path)
    result = cli(*call(path, "far", ""))
    is_one_sentence(result, FAILURE_CODE)
    assert "cannot be reached" in result.err + result.out
    assert "onnection refused" in result.err + result.out
    assert read_files(tmp_path) == before


@pytest.mark.parametrize("path", [path for path in APP_COMMANDS if path not in RUNNING | APPLICATION_ONLY])
def test_a_memory_store_is_refused(cli: Cli, path: str) -> None:
    result = cli(*path.split(), *CALLS[path], "--url", "memory://")
    is_one_sentence(result, USAGE_ERROR_CODE)
    assert "memory:// is always empty here" in result.err


@pytest.mark.parametrize("path", [path for path in APP_COMMANDS if path not in RUNNING | APPLICATION_ONLY])
def test_app_and_url_together_are_refused(cli: Cli, path: str) -> None:
    result = cli(*call(path, "shop", ""), "--url", "sqlite:///other.db")
    is_one_sentence(result, USAGE_ERROR_CODE)
    assert "either --app or --url" in result.err


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_prints_json(path: str) -> None:
    options = {option for parameter in COMMANDS[path].params for option in parameter.opts}
    assert "--json" in options


@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", "--app", "nothing:app"],
        ["worker", "broken:app"],
        ["enqueue", "snd", "--app", "shop:app"],
        ["queues", "pause", "mail", "--until", "noon"],
    ],
    ids=" ".join,
)
def test_the_installed_program_reports_errors(cli: Cli, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    command = [sys.executable, "-m", "tidemill", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    is_one_sentence(CliResult(result.returncode, result.stdout, result.stderr), USAGE_ERROR_CODE)
