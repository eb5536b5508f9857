"""The TOML file: where it is found, and what it refuses (X5)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemill import ConfigurationError, Retention
from tidemill.settings import Settings

EVERYTHING = """
url = "sqlite:///jobs.db"
[worker]
queues = ["feeds", "mail"]
strict = true
concurrency = 5
lease = 20
[log]
format = "json"
[queues.feeds]
weight = 5
keep_done = { age = 3600 }
[queues."with.dot"]
max_length = 10
"""


def test_a_file_may_set_everything(folder: Path) -> None:
    (folder / "tidemill.toml").write_text(EVERYTHING)
    loaded = Settings.load()
    assert loaded.file == Path("tidemill.toml")
    assert loaded.value("url") == "sqlite:///jobs.db"
    assert loaded.configured("worker") == {
        "queues": {"feeds": None, "mail": None},
        "strict": True,
        "concurrency": 5,
        "lease": 20.0,
    }
    assert loaded.configured("log") == {"format": "json"}
    assert loaded.queues == ["feeds", "with.dot"]
    assert loaded.queue("feeds") == {"weight": 5, "keep_done": Retention(age=3600)}
    assert loaded.value("queues.with.dot.max_length") == 10


def test_each_application_has_its_own_table(folder: Path) -> None:
    """Tidemill does not check the content of such a table."""
    (folder / "tidemill.toml").write_text(
        "worker.lease = 9\n[applications.music]\nbatch = 7\n[applications.music.calls]\nper_day = 250\n"
    )
    loaded = Settings.load()
    assert loaded.application("music") == {"batch": 7, "calls": {"per_day": 250}}
    assert loaded.application("shop") == {}
    assert loaded.value("worker.lease") == 9.0
    assert "applications" not in {entry.name.partition(".")[0] for entry in loaded.effective()}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("applications = 7", "tidemill.toml: applications must be a table"),
        ("[applications]\nmusic = 7", "tidemill.toml: applications.music must be a table"),
        ("[aplications.music]\na = 7", "unknown key 'aplications'; did you mean 'applications'?"),
    ],
)
def test_a_table_of_an_application_is_a_table(folder: Path, text: str, says: str) -> None:
    (folder / "tidemill.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        Settings.load()
    assert says in str(caught.value)


def test_pyproject_has_a_table_for_it(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.tidemill.worker]\nlease = 9\n")
    loaded = Settings.load()
    assert (loaded.value("worker.lease"), loaded.origin("worker.lease")) == (9.0, "pyproject.toml")
    (folder / "tidemill.toml").write_text("")
    assert Settings.load().origin("worker.lease") == "default"


def test_a_pyproject_without_our_table_is_not_parsed(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("this is not TOML")
    assert Settings.load().file is None


def test_another_file_by_argument_or_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tidemill.toml").write_text("worker.lease = 1\n")
    (folder / "variable.toml").write_text("worker.lease = 2\n")
    (folder / "argument.toml").write_text("worker.lease = 3\n")
    assert Settings.load().value("worker.lease") == 1
    monkeypatch.setenv("TIDEMILL_CONFIG", "variable.toml")
    assert Settings.load().value("worker.lease") == 2
    loaded = Settings.load(config=folder / "argument.toml")
    assert (loaded.value("worker.lease"), loaded.origin("worker.lease")) == (3, "argument.toml")


def test_a_named_file_must_exist(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"^config: there is no file .*gone\.toml"):
        Settings.load(config="gone.toml")
    monkeypatch.setenv("TIDEMILL_CONFIG", "gone.toml")
    with pytest.raises(ConfigurationError, match=r"^environment TIDEMILL_CONFIG: there is no file"):
        Settings.load()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[worker]\nconcurency = 3",
            ["unknown key 'worker.concurency'", "did you mean 'worker.concurrency'?"],
        ),
        ("concurrency = 3", ["unknown key 'concurrency'", "did you mean 'worker.concurrency'?"]),
        ("[workers]\nlease = 3", ["unknown key 'workers'", "did you mean 'worker'?"]),
        ("[queues.feeds]\nwieght = 3", ["'queues.feeds.wieght'", "did you mean 'queues.feeds.weight'?"]),
        ("[elsewhere]\n", ["unknown key 'elsewhere'", "known are url, app, worker.queues"]),
        ("worker = 3", ["worker must be a table", "[worker]"]),
        ("queues = ['feeds']", ["queues must be a table"]),
        ("[queues]\nfeeds = 3", ["queues.feeds must be a table"]),
        ("[worker]\nconcurrency = '3'", ["worker.concurrency must be a whole number of 1 or more, is '3'"]),
        ("[worker]\nconcurrency = true", ["worker.concurrency must be a whole number"]),
        (
            "[worker]\nqueues = { feeds = 0 }",
            ["worker.queues must be names", 'such as { feeds = 5, mail = 1 } or ["feeds", "mail"]'],
        ),
        ("[worker]\nqueues = [['feeds']]", ["worker.queues must be names"]),
        (
            "[queues.feeds]\nkeep_done = 60",
            ["queues.feeds.keep_done must be an age", "such as { age = 86400, count = 1000 }, is 60"],
        ),
        ("[queues.feeds]\nkeep_done = { age = -5 }", ["queues.feeds.keep_done must be an age"]),
        ("[queues.feeds]\nkeep_done = { age = nan }", ["queues.feeds.keep_done must be an age"]),
        ("[queues.feeds]\nkeep_done = { count = -3 }", ["queues.feeds.keep_done must be an age"]),
        ("[queues.feeds]\nkeep_done = { days = 1 }", ["queues.feeds.keep_done must be an age"]),
        ("[queues.feeds]\nkeep_done = {}", ["queues.feeds.keep_done must be an age"]),
        ("url = 3", ["url must be text"]),
        ("url = \n", ["is not TOML", "line 1"]),
    ],
)
def test_an_invalid_file_is_refused(folder: Path, text: str, says: list[str]) -> None:
    (folder / "tidemill.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        Settings.load()
    assert str(caught.value).startswith("tidemill.toml")
    assert all(part in str(caught.value) for part in says), str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://:sk-secret@host", "redis://sk-secret@host", "postgresql://host/db?password=sk-secret"]
)
def test_a_secret_in_a_file_is_refused_with_the_remedy_x5(folder: Path, url: str) -> None:
    (folder / "tidemill.toml").write_text(f'url = "{url}"')
    with pytest.raises(ConfigurationError, match=r"environment only; .* set TIDEMILL_URL") as caught:
        Settings.load()
    assert "sk-secret" not in str(caught.value)


def test_a_byte_order_mark_is_ignored(folder: Path) -> None:
    (folder / "tidemill.toml").write_text("\ufeffworker.lease = 3\n", encoding="utf-8")
    assert Settings.load().value("worker.lease") == 3


def test_an_unreadable_file_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tidemill.toml").write_text("")

    def refused(*_args: object, **_options: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(ConfigurationError, match=r"tidemill\.toml cannot be read: Permission denied; check"):
        Settings.load()


def test_without_a_working_directory_there_is_no_file(folder: Path) -> None:
    gone = folder / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        assert Settings.load().file is None
    finally:
        os.chdir(folder)
