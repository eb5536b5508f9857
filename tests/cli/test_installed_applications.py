"""Applications by name, as installed packages provide them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import APPLICATION, Cli
from tests.cli.test_completion import complete

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


def install_package(folder: Path, package: str, entries: str, metadata: str = METADATA) -> None:
    """Writes the files of an installed package as in site-packages."""
    described = folder / f"{package}-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(metadata.replace("shopkit", package))
    (described / "entry_points.txt").write_text(entries)


@pytest.fixture(autouse=True)
def packages(cli: Cli, tmp_path: Path) -> None:
    cli.make_store()
    install_package(tmp_path, "shopkit", ENTRIES)
    (tmp_path / "needy.py").write_text("import not_there.at_all\n")
    (tmp_path / "unextra.py").write_text("import not_there.at_all\n")
    (tmp_path / "halfthere.py").write_text("import halfthere.parts\n")


@pytest.mark.parametrize("name", ["store", "店铺"])
def test_an_application_is_found_by_name(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = cli("enqueue", "send", "to=ann", "--app", name).out.strip()
    monkeypatch.setenv("TIDEMILL_APP", name)
    assert cli("jobs", "show", job, "--json").json["task"] == "send"


def test_worker_up_and_web_start_by_name(cli: Cli) -> None:
    job = cli.send("ann")
    command = [sys.executable, "-m", "tidemill", "worker", "store", "--processes", "1", "--until-idle"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert cli("jobs", "show", job, "--app", "store", "--json").json["state"] == "done"


def test_an_unknown_name_lists_the_known_ones(cli: Cli) -> None:
    result = cli("worker", "stroe")
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert (
        "app: no installed package has an application named 'stroe': did you mean store? there are"
        in result.err
    )
    assert "store" in result.err.partition("there are")[2]
    assert "one of your own is written module:app, such as stroe:app" in result.err


def test_the_bundled_applications_are_known(cli: Cli) -> None:
    known = cli("up", "radio").err
    assert all(name in known for name in ("articles", "music"))


def test_a_missing_package_names_the_extra_to_install(cli: Cli) -> None:
    result = cli("up", "poor")
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert "poor needs the package of the module 'not_there'" in result.err
    assert "pip install 'shopkit[poor]'" in result.err


@pytest.mark.parametrize("name", ["lost", "plain"])
def test_a_missing_package_without_an_extra_is_reported_plainly(cli: Cli, name: str) -> None:
    result = cli("up", name)
    assert result.code == 2
    assert "could not be imported: ModuleNotFoundError" in result.err or "was not found" in result.err
    assert "pip install" not in result.err


def test_an_invalid_setting_is_reported_without_a_line_of_the_package(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "picky.py").write_text(
        "from tidemill import ConfigurationError\nraise ConfigurationError('PICKY_SIZE: must be 1 or more')\n"
    )
    install_package(tmp_path, "pickykit", "[tidemill.applications]\npicky = picky:app\n")
    assert cli("up", "picky").err.startswith("tidemill: PICKY_SIZE: must be 1 or more (see tidemill up")
    assert "picky.py:2" in cli("up", "picky:app").err


def test_two_packages_with_one_name_are_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mart.py").write_text(APPLICATION)
    install_package(tmp_path, "othershop", "[tidemill.applications]\nstore = mart:app\n")
    result = cli("worker", "store")
    assert result.code == 2
    assert "'store' is the name of several applications; write mart:app or shop:app" in result.err


def test_names_are_completed(cli: Cli) -> None:
    assert complete("tidemill up st") == ["store"]
    assert complete("tidemill worker mus") == ["music"]
    assert complete("tidemill web mus") == ["music"]
    assert complete("tidemill jobs --app sto") == ["store"]


def test_an_application_is_imported_only_when_named(cli: Cli) -> None:
    code = (
        "import sys; from tidemill.cli.root import root; root(['up', '--help'], standalone_mode=False);"
        "print([m for m in ('importlib.metadata', 'shop', 'tidemill_apps') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"
