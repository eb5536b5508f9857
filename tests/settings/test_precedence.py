"""Precedence of settings: argument, environment, TOML file, default (X5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill import ConfigurationError, Retention, Tidemill
from tidemill.settings import Settings


def test_the_stronger_source_wins_and_is_named_x5(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "worker.concurrency"
    loaded = Settings.load()
    assert (loaded.value(name), loaded.origin(name)) == (10, "default")
    (folder / "tidemill.toml").write_text("[worker]\nconcurrency = 20\n")
    loaded = Settings.load()
    assert (loaded.value(name), loaded.origin(name)) == (20, "tidemill.toml")
    monkeypatch.setenv("TIDEMILL_WORKER_CONCURRENCY", "30")
    loaded = Settings.load()
    assert (loaded.value(name), loaded.origin(name)) == (30, "environment TIDEMILL_WORKER_CONCURRENCY")
    loaded = Settings.load({name: 40})
    assert (loaded.value(name), loaded.origin(name)) == (40, "argument")
    loaded = Settings.load({name: None})
    assert loaded.value(name) == 30


def test_which_variable_names_the_store_x5(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tidemill.toml").write_text('url = "sqlite:///file.db"\n')
    seen = [Settings.load().origin("url")]
    for name in ("DATABASE_URL", "REDIS_URL", "TIDEMILL_URL"):
        monkeypatch.setenv(name, f"memory://{name}")
        loaded = Settings.load()
        assert loaded.value("url") == f"memory://{name}"
        seen.append(loaded.origin("url"))
    assert seen == [
        "tidemill.toml",
        "environment DATABASE_URL",
        "environment REDIS_URL",
        "environment TIDEMILL_URL",
    ]
    assert Settings.load({"url": "memory://"}).origin("url") == "argument"


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_URL", "")
    monkeypatch.setenv("TIDEMILL_WORKER_LEASE", "")
    assert Settings.load().origin("url") == Settings.load().origin("worker.lease") == "default"


def test_every_kind_of_value_can_be_written_as_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    written = {
        "TIDEMILL_WORKER_QUEUES": " feeds=5, mail ",
        "TIDEMILL_WORKER_STRICT": "true",
        "TIDEMILL_WORKER_LEASE": "1.5",
        "TIDEMILL_WORKER_GRACE": "0",
        "TIDEMILL_WORKER_THREADS": "null",
        "TIDEMILL_LOG_LEVEL": "DEBUG",
        "TIDEMILL_QUEUES_SONG_FEEDS_KEEP_DONE": "age=60,count=5",
        "TIDEMILL_QUEUES_SONG_FEEDS_CONCURRENCY": "2",
    }
    for name, text in written.items():
        monkeypatch.setenv(name, text)
    loaded = Settings.load()
    assert loaded.configured("worker") == {
        "queues": {"feeds": 5, "mail": None},
        "strict": True,
        "lease": 1.5,
        "grace": 0.0,
        "threads": None,
    }
    assert loaded.value("log.level") == "debug"
    assert loaded.queue("song-feeds") == {"keep_done": Retention(age=60, count=5), "concurrency": 2}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("TIDEMILL_WORKER_CONCURRENCY", "0", "must be a whole number of 1 or more, is '0'"),
        ("TIDEMILL_WORKER_CONCURRENCY", "many", "must be a whole number of 1 or more, is 'many'"),
        ("TIDEMILL_WORKER_LEASE", "inf", "must be a number of seconds above 0"),
        ("TIDEMILL_WORKER_LEASE", "nan", "must be a number of seconds above 0"),
        ("TIDEMILL_WORKER_STRICT", "perhaps", "must be true or false"),
        ("TIDEMILL_WORKER_QUEUES", "feeds=none=5", "names of queues"),
        ("TIDEMILL_WORKER_QUEUES", "=5", "names of queues"),
        ("TIDEMILL_WORKER_QUEUES", ",", "names of queues"),
        ("TIDEMILL_LOG_FORMAT", "yaml", "must be auto, json or console"),
    ],
)
def test_a_wrong_variable_is_named_with_its_expected_form(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigurationError) as caught:
        Settings.load()
    assert str(caught.value).startswith(f"environment {name}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "60", "ages=60", "age=-", "age=60,cuont=5"])
def test_a_mistyped_retention_does_not_keep_everything(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TIDEMILL_QUEUES_FEEDS_KEEP_DONE", text or ",")
    with pytest.raises(ConfigurationError, match=r"KEEP_DONE: must be an age in seconds"):
        Settings.load().queue("feeds")


def test_an_unknown_setting_is_refused() -> None:
    for name in ("worker.colour", "queues.feeds.colour", "queues", "colour"):
        with pytest.raises(ConfigurationError, match="there is no setting"):
            Settings.load().value(name)


def test_unread_variables_are_listed_by_name_x5(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORKER_CONCURENCY", "QUEUES_FEEDS_WEIGHT", "QUEUES_MAIL_WEIGHT", "OLD", "CONFIG", "URL"):
        monkeypatch.setenv(f"TIDEMILL_{name}", "")
    unread = Settings.load().unread(["feeds"])
    assert [ignored.setting for ignored in unread] == [
        "TIDEMILL_OLD",
        "TIDEMILL_QUEUES_MAIL_WEIGHT",
        "TIDEMILL_WORKER_CONCURENCY",
    ]
    assert "did you mean TIDEMILL_WORKER_CONCURRENCY?" in unread[2].why


@pytest.mark.parametrize("text", ["age", "count=-3", "age=-5", "age=nan", "days=1", "5", "age=5,count"])
def test_an_invalid_retention_bound_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """It would delete everything, or keep everything."""
    monkeypatch.setenv("TIDEMILL_QUEUES_FEEDS_KEEP_DONE", text)
    with pytest.raises(ConfigurationError, match="a count or both, such as age=86400,count=1000, is"):
        Settings.load().queue("feeds")


@pytest.mark.parametrize(
    ("variable", "queues"),
    [
        ("TIDEMILL_QUEUES_FEEDS_KEY_CONCURRENCY", ["feeds", "feeds_key"]),
        ("TIDEMILL_QUEUES_MY_Q_WEIGHT", ["my-q", "my_q"]),
    ],
)
def test_a_variable_that_matches_two_queues_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, queues: list[str]
) -> None:
    app = Tidemill("memory://")
    for queue in queues:
        app.queue(queue)
    monkeypatch.setenv(variable, "2")
    app = Tidemill("memory://")
    app.queue(queues[0])
    with pytest.raises(ConfigurationError, match=rf"^environment {variable}: stands for .* as well as for"):
        app.queue(queues[1])
