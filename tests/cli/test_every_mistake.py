"""Every command with everything that can be wrong around it: one sentence, the right exit code, no
traceback, and nothing changed. Commands are found by walking the tree: a new one cannot be forgotten."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.chaos.disk import small_disk
from tests.cli.support import Cli, Ran, application_at
from tests.cli.tree import (
    CALLS,
    COMMANDS,
    MAKING,
    NAMES_ONLY_A_GROUP,
    OF_CODE,
    PLANNING,
    RUNNING,
    WITHOUT_STORE,
    call,
)
from tidemill.cli import FAILURE, USAGE
from tidemill.stores.sqlite import connection, writer

CALLABLE = [path for path in COMMANDS if path not in NAMES_ONLY_A_GROUP]
ON_A_STORE = [path for path in CALLABLE if path not in WITHOUT_STORE]
ON_AN_APP = [path for path in ON_A_STORE if path != "bench"]
"""`bench` opens no store that is there: it measures on a file beside it."""

LOOKING = [path for path in ON_A_STORE if path not in MAKING | PLANNING]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def is_one_sentence(ran: Ran, code: int) -> None:
    """On stderr; `doctor` says what is wrong with a store as its finding."""
    said = ran.err or ran.out
    assert ran.code == code, said
    assert len(said.splitlines()) == 1, said
    assert said.startswith(("tidemill: ", "bad  store: "))
    assert "Traceback" not in ran.out + ran.err


def test_every_command_has_an_example() -> None:
    assert set(CALLS) == set(CALLABLE)


@pytest.mark.parametrize("path", COMMANDS)
def test_help(cli: Cli, path: str) -> None:
    ran = cli(*path.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: tidemill {path}")


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_says_what_it_is(path: str) -> None:
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"tidemill {path} {parameter.opts[0]} has no help"


@pytest.mark.parametrize("path", COMMANDS)
def test_an_unknown_option(cli: Cli, tmp_path: Path, path: str) -> None:
    before = contents(tmp_path)
    ran = cli(*path.split(), *CALLS.get(path, ()), "--no-such-option")
    is_one_sentence(ran, USAGE)
    assert "--no-such-option" in ran.err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("path", CALLABLE)
def test_arguments_that_are_missing_or_too_many(cli: Cli, path: str) -> None:
    arguments = [each for each in COMMANDS[path].params if isinstance(each, click.Argument)]
    if any(argument.required for argument in arguments):
        is_one_sentence(cli(*path.split()), USAGE)
    elif not any(argument.nargs == -1 for argument in arguments):
        is_one_sentence(cli(*path.split(), *["surplus"] * (len(arguments) + 1)), USAGE)


@pytest.mark.parametrize("path", [name for name, it in COMMANDS.items() if isinstance(it, click.Group)])
def test_an_unknown_subcommand(cli: Cli, path: str) -> None:
    ran = cli(*path.split(), "surplus")
    is_one_sentence(ran, USAGE)
    assert "surplus" in ran.err


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
@pytest.mark.parametrize("path", ON_AN_APP)
def test_a_module_without_an_application(cli: Cli, tmp_path: Path, path: str, module: str, says: str) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "unfinished.py").write_text("def f(:\n")
    (tmp_path / "needy.py").write_text("import elsewhere\n")
    (tmp_path / "script.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "bare.py").write_text("")
    twice = "from tidemill import Tidemill\napp = Tidemill()\napp.queue('mail')\napp.queue('mail')\n"
    (tmp_path / "twice.py").write_text(twice)
    before = contents(tmp_path)
    ran = cli(*call(path, module, "sqlite:///new.db"))
    is_one_sentence(ran, USAGE)
    assert says in ran.err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("path", ON_A_STORE)
@pytest.mark.parametrize("place", ["environment", "file", "damaged file"])
def test_a_wrong_setting(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, place: str
) -> None:
    if place == "environment":
        monkeypatch.setenv("TIDEMILL_WORKER_LEASE", "soon")
        says = "environment TIDEMILL_WORKER_LEASE: must be a number of seconds above 0, is 'soon'"
    else:
        (tmp_path / "tidemill.toml").write_text("[worker]\nlease = -1" if place == "file" else "[worker")
        says = "tidemill.toml"
    before = contents(tmp_path)
    ran = cli(*call(path, "shop", "sqlite:///shop.db"))
    is_one_sentence(ran, USAGE)
    assert ran.err.startswith(f"tidemill: {says}")
    assert "shop" not in ran.err  # nothing is wrong with the module that happens to ask first
    assert contents(tmp_path) == before


@pytest.mark.parametrize("path", LOOKING)
def test_a_database_that_is_not_there_is_not_made(cli: Cli, tmp_path: Path, path: str) -> None:
    application_at(tmp_path, "absent", "sqlite:///absent.db")
    before = contents(tmp_path)
    ran = cli(*call(path, "absent", "sqlite:///absent.db"))
    is_one_sentence(ran, FAILURE)
    assert f"there is no database {tmp_path / 'absent.db'}: check the URL" in ran.err + ran.out
    assert contents(tmp_path) == before


@pytest.mark.parametrize("path", [path for path in ON_A_STORE if path not in PLANNING])
@pytest.mark.parametrize("file", ["missing/folder.db", "/proc/tidemill.db"], ids=["missing", "read-only"])
def test_a_folder_that_is_missing_or_takes_no_files(cli: Cli, tmp_path: Path, path: str, file: str) -> None:
    application_at(tmp_path, "homeless", f"sqlite:///{file}")
    before = contents(tmp_path)
    ran = cli(*call(path, "homeless", f"sqlite:///{file}"))
    is_one_sentence(ran, FAILURE)
    assert "makes it" not in ran.err + ran.out or "missing" not in file
    assert contents(tmp_path) == before


def test_a_store_in_a_folder_that_is_read_only(cli: Cli, tmp_path: Path) -> None:
    """A real one: to root a mode says nothing. All commands on one, since mounting is slow."""
    cli.make_store()
    with small_disk(tmp_path / "disk", 4) as disk:
        shutil.copy(tmp_path / "shop.db", disk)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        application_at(tmp_path, "stuck", "sqlite:///disk/shop.db")
        for path in ON_A_STORE:
            ran = cli(*call(path, "stuck", "sqlite:///disk/shop.db"))
            is_one_sentence(ran, FAILURE)
            assert "disk/shop.db" in ran.err + ran.out, path


@pytest.mark.parametrize("path", ON_AN_APP)
def test_a_file_that_is_no_database(cli: Cli, tmp_path: Path, path: str) -> None:
    (tmp_path / "notes.db").write_text("dear diary, this is not a database at all")
    application_at(tmp_path, "diary", "sqlite:///notes.db")
    before = contents(tmp_path)
    ran = cli(*call(path, "diary", "sqlite:///notes.db"))
    is_one_sentence(ran, FAILURE)
    assert "notes.db" in ran.err + ran.out
    assert contents(tmp_path) == before


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
    """Another process holds all of the file, and patience is short."""
    cli.make_store()
    for module in (connection, writer):
        monkeypatch.setattr(module, "BUSY_PATIENCE", 0.05)
    holder = subprocess.Popen([sys.executable, "-c", LOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield
        holder.communicate()


@pytest.mark.parametrize("path", ON_AN_APP)
@pytest.mark.usefixtures("locked")
def test_a_store_that_another_process_has_locked(cli: Cli, path: str) -> None:
    ran = cli(*call(path, "shop", "sqlite:///shop.db"))
    is_one_sentence(ran, FAILURE)
    assert "another process held the database" in ran.err + ran.out


@pytest.fixture(scope="module")
def nobody() -> Iterator[str]:
    """An address at which nobody listens: the port is taken, and not by a server."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("url", ["redis://{}/0?timeout=0.1", "postgresql://ann@{}/none?timeout=0.5"])
@pytest.mark.parametrize("path", ON_AN_APP)
def test_a_server_that_is_dead(cli: Cli, tmp_path: Path, nobody: str, path: str, url: str) -> None:
    application_at(tmp_path, "far", url.format(nobody))
    before = contents(tmp_path)
    ran = cli(*call(path, "far", ""))
    is_one_sentence(ran, FAILURE)
    assert "cannot be reached" in ran.err + ran.out
    assert "onnection refused" in ran.err + ran.out
    assert contents(tmp_path) == before


@pytest.mark.parametrize("path", [path for path in ON_AN_APP if path not in RUNNING | OF_CODE])
def test_memory_is_always_empty_here(cli: Cli, path: str) -> None:
    ran = cli(*path.split(), *CALLS[path], "--url", "memory://")
    is_one_sentence(ran, USAGE)
    assert "memory:// is always empty here" in ran.err


@pytest.mark.parametrize("path", [path for path in ON_AN_APP if path not in RUNNING | OF_CODE])
def test_an_application_and_a_url_contradict_each_other(cli: Cli, path: str) -> None:
    ran = cli(*call(path, "shop", ""), "--url", "sqlite:///other.db")
    is_one_sentence(ran, USAGE)
    assert "either --app or --url" in ran.err


@pytest.mark.parametrize("path", COMMANDS)
def test_output_for_programs_everywhere(path: str) -> None:
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
def test_the_real_program(cli: Cli, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    command = [sys.executable, "-m", "tidemill", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    is_one_sentence(Ran(ran.returncode, ran.stdout, ran.stderr), USAGE)
