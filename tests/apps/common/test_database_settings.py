"""The tables of an application are in a separate file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.program import free_port
from tidemill import ConfigurationError, Tidemill
from tidemill_apps.articles.service import Articles
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.common.database import Database, DatabaseUnavailable
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import MusicSettings


@pytest.mark.parametrize(
    ("made", "variable"),
    [
        (lambda app, url: Music(app, MusicSettings(database_url=url)), "MUSIC_DATABASE_URL"),
        (lambda app, url: Articles(app, ArticlesSettings(database_url=url)), "ARTICLES_DATABASE_URL"),
    ],
)
def test_the_file_of_the_jobs_is_refused(
    made: Callable[[Tidemill, str], object],
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for same in ("jobs.db", "./jobs.db", f"{tmp_path}/jobs.db"):
        with pytest.raises(ConfigurationError, match=f"^{variable}: jobs.db is the file of the jobs; name"):
            made(Tidemill("sqlite:///jobs.db"), f"sqlite:///{same}")
    made(Tidemill("sqlite:///jobs.db"), "sqlite:///tables.db")
    made(Tidemill("memory://"), "sqlite:///jobs.db")
    assert list(tmp_path.iterdir()) == []


Make = Callable[[str], Database]


def music(url: str) -> Database:
    return Music(Tidemill("memory://"), MusicSettings(database_url=url)).database


def articles(url: str) -> Database:
    return Articles(Tidemill("memory://"), ArticlesSettings(database_url=url)).posts.database


APPLICATIONS = pytest.mark.parametrize(
    ("make", "name"),
    [pytest.param(music, "music", id="music"), pytest.param(articles, "articles", id="articles")],
)


@APPLICATIONS
@pytest.mark.parametrize("url", ["mysql://x/y", "nothing", "sqlite://"])
def test_an_address_of_no_database_names_its_variable_and_an_example(make: Make, name: str, url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(url)
    assert str(caught.value).startswith(f"{name.upper()}_DATABASE_URL: ")
    assert f"; write it as sqlite:///{name}.db or postgresql://" in str(caught.value)


@APPLICATIONS
async def test_a_database_that_cannot_be_used_names_its_variable(
    make: Make, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = f"{name.upper()}_DATABASE_URL: "
    server = f"postgresql://ann:hunter2@127.0.0.1:{free_port()}/blog"
    for url, problem in (
        (server, "cannot be reached"),
        (f"sqlite:///{tmp_path}/none/{name}.db", "the file cannot be opened"),
    ):
        assert problem in await error_message(make(url), DatabaseUnavailable, named)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    assert "tidemill[postgres]" in await error_message(make(server), ConfigurationError, named)


async def error_message(database: Database, kind: type[Exception], named: str) -> str:
    with pytest.raises(kind) as caught:
        async with database.reading():
            pass
    assert str(caught.value).startswith(named)
    return str(caught.value)


@pytest.mark.parametrize("name", ["music", "articles"])
def test_a_wrong_value_in_tidemill_toml_is_named_by_its_key(name: str, tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text(f'[applications.{name}]\ndatabase_url = "mysql://x/y"\n')
    command = [sys.executable, "-m", "tidemill", "up", name, "--port", "0"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode
    place = f"tidemill.toml, applications.{name}.database_url"
    assert f"{place}: databases by 'mysql' are not known here" in ended.stderr
