"""Applications by name: what installed packages offer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import APPLICATION, Cli
from tests.cli.test_completion import offered

ENTRIES = """
[tidemill.applications]
store = shop:app
店铺 = shop:app
poor = needy:app
lost = halfthere:app
plain = unextra:app
"""
METADATA = """Metadata-Version: 2.4
Name: shopkit
Version: 1.0
Provides-Extra: poor
Provides-Extra: lost
"""


def offer(folder: Path, package: str, entries: str, metadata: str = METADATA) -> None:
    """As an installed package lies in site-packages."""
    described = folder / f"{package}-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(metadata.replace("shopkit", package))
    (described / "entry_points.txt").write_text(entries)


@pytest.fixture(autouse=True)
def packages(cli: Cli, tmp_path: Path) -> None:
    cli.make_store()
    offer(tmp_path, "shopkit", ENTRIES)
    (tmp_path / "needy.py").write_text("import not_there.at_all\n")
    (tmp_path / "unextra.py").write_text("import not_there.at_all\n")
    (tmp_path / "halfthere.py").write_text("import halfthere.parts\n")


@pytest.mark.parametrize("name", ["store", "店铺"])
def test_a_name_is_as_good_as_the_place(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = cli("enqueue", "send", "to=ann", "--app", name).out.strip()
    monkeypatch.setenv("TIDEMILL_APP", name)
    assert cli("jobs", "show", job, "--json").json["task"] == "send"


def test_servers_and_their_processes_are_started_by_name(cli: Cli) -> None:
    job = cli.send("ann")
    command = [sys.executable, "-m", "tidemill", "worker", "store", "--processes", "1", "--until-idle"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert cli("jobs", "show", job, "--app", "store", "--json").json["state"] == "done"


def test_an_unknown_name_tells_those_there_are(cli: Cli) -> None:
    ran = cli("worker", "stroe")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert (
        "app: no installed package has an application named 'stroe': did you mean store? there are" in ran.err
    )
    assert "store" in ran.err.partition("there are")[2]
    assert "one of your own is written module:app, such as stroe:app" in ran.err


def test_the_bundled_ones_are_among_them(cli: Cli) -> None:
    assert "articles, lost, music" in cli("up", "radio").err


def test_a_missing_extra_is_told_as_what_to_install(cli: Cli) -> None:
    ran = cli("up", "poor")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert "poor needs the package of the module 'not_there'" in ran.err
    assert "pip install 'shopkit[poor]'" in ran.err


@pytest.mark.parametrize("name", ["lost", "plain"])
def test_what_no_extra_would_bring_is_told_as_it_is(cli: Cli, name: str) -> None:
    ran = cli("up", name)
    assert ran.code == 2
    assert "could not be imported: ModuleNotFoundError" in ran.err or "was not found" in ran.err
    assert "pip install" not in ran.err


def test_a_setting_that_is_wrong_is_told_and_not_where_in_the_package(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "picky.py").write_text(
        "from tidemill import ConfigurationError\nraise ConfigurationError('PICKY_SIZE: must be 1 or more')\n"
    )
    offer(tmp_path, "pickykit", "[tidemill.applications]\npicky = picky:app\n")
    assert cli("up", "picky").err.startswith("tidemill: PICKY_SIZE: must be 1 or more (see tidemill up")
    assert "picky.py:2" in cli("up", "picky:app").err


def test_two_packages_with_one_name(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mart.py").write_text(APPLICATION)
    offer(tmp_path, "othershop", "[tidemill.applications]\nstore = mart:app\n")
    ran = cli("worker", "store")
    assert ran.code == 2
    assert "'store' is the name of several applications; write mart:app or shop:app" in ran.err


def test_shells_are_offered_the_names(cli: Cli) -> None:
    assert offered("tidemill up st") == ["store"]
    assert offered("tidemill worker mus") == ["music"]
    assert offered("tidemill web mus") == ["music"]
    assert offered("tidemill jobs --app sto") == ["store"]


def test_nothing_is_imported_before_it_is_named(cli: Cli) -> None:
    code = (
        "import sys; from tidemill.cli.root import root; root(['up', '--help'], standalone_mode=False);"
        "print([m for m in ('importlib.metadata', 'shop', 'tidemill_apps') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"
