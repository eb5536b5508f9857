"""A secret of the environment is never shown: in no error, repr or list of settings (X5)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill import Tidemill, TidemillError
from tidemill.settings import Settings
from tidemill.settings.catalogue import CATALOGUE
from tidemill.store_url import mask_url

SECRET = "sk-0123456789"  # noqa: S105 - what must not be shown
URLS = [
    f"redis://:{SECRET}@host:6379/0",
    f"redis://{SECRET}@host:6379/0",
    f"postgresql://user:{SECRET}/@:?#@host/db",
    f"postgresql://host/db?password={SECRET}",
    f"postgresql://host/db#{SECRET}",
    f"mysql://user:p@{SECRET}@host",
    f"sqlite:///jobs.db?key={SECRET}",
    f"sqlite://user:{SECRET}@host/jobs.db",
    f"user:{SECRET}@host",
    f"user:{SECRET}@host://db",
    f"{SECRET}@host",
    f"host=db user=me password={SECRET}",
    f"Server=h;Password={SECRET};",
    f"mysql://root:{SECRET}",
    f"sqlite://[x/{SECRET}",
    f"password={SECRET}://x",
]


@pytest.mark.parametrize("url", URLS)
def test_masked_urls_have_no_secrets(url: str) -> None:
    assert SECRET not in mask_url(url)
    assert mask_url(mask_url(url)) == mask_url(url)


@pytest.mark.parametrize("variable", ["TIDEMILL_URL", "REDIS_URL", "DATABASE_URL"])
@pytest.mark.parametrize("url", URLS)
def test_a_url_of_the_environment_is_shown_masked(
    monkeypatch: pytest.MonkeyPatch, variable: str, url: str
) -> None:
    monkeypatch.setenv(variable, url)
    loaded = Settings.load()
    assert loaded.value("url") == url
    assert SECRET not in repr(loaded)
    assert SECRET not in repr(loaded.effective())
    try:
        shown, refused = f"{(app := Tidemill()).url} {app.url!r}", None
    except TidemillError as error:
        shown, refused = str(error), error
    assert SECRET not in shown
    if refused is not None:
        assert variable in shown
        assert refused.__suppress_context__ or refused.__context__ is None


def test_the_path_of_a_file_store_is_shown() -> None:
    assert mask_url("memory://") == "memory://"
    assert mask_url("sqlite:////home/me@work/jobs.db") == "sqlite:////home/me@work/jobs.db"
    assert mask_url("sqlite:///jobs.db?key=1") == "sqlite:///jobs.db?***"
    assert mask_url("redis://host:6379/0") == "redis://***"


@pytest.mark.parametrize("setting", [name for name in CATALOGUE if name != "url"])
@pytest.mark.parametrize("text", [URLS[0], f"host=db user=me password={SECRET}", f"Server=h;Pwd={SECRET};"])
def test_a_url_in_the_wrong_variable_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, setting: str, text: str
) -> None:
    monkeypatch.setenv(CATALOGUE[setting].variables[0], text)
    with pytest.raises(TidemillError) as caught:
        Settings.load()
    assert SECRET not in str(caught.value)
    assert "is ***" in str(caught.value)


def test_variables_of_others_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_TOKEN", SECRET)
    assert SECRET not in str(vars(Settings.load()))


def test_unread_variables_are_listed_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_TOKEN", SECRET)
    message = str(*Settings.load().unread())
    assert message.startswith("TIDEMILL_TOKEN is set and has no effect")
    assert SECRET not in message


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_doctor_shows_no_secret_x5(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", f"{URLS[0]}?timeout=0.5")  # nobody is there to be waited for
    monkeypatch.setenv("DATABASE_URL", URLS[2])
    monkeypatch.setenv("TIDEMILL_TOKEN", SECRET)
    with_timeout = ["doctor", "--url", f"{URLS[1]}?timeout=0.5"]
    for command in (["doctor"], with_timeout, ["doctor", "--url", "sqlite:///jobs.db"]):
        done = subprocess.run(
            [sys.executable, "-m", "tidemill", *command, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
        assert done.returncode in (1, 2, 3), done
        assert SECRET not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_nothing_of_the_environment_reaches_the_database(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", URLS[0])
    monkeypatch.setenv("TIDEMILL_TOKEN", SECRET)
    app = Tidemill("sqlite:///jobs.db")
    app.queue("feeds", weight=2)

    @app.task(queue="feeds")
    def send(number: int) -> None: ...

    handle = send.enqueue_sync(1)
    app.run_worker(until_idle=True)
    assert SECRET not in json.dumps(str(handle.status_sync()))
    app.close_sync()
    assert not [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
