"""The tables of an application are in a file of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill import ConfigurationError, Tidemill
from tidemill_apps.articles.articles import Articles
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.music.music import Music
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
