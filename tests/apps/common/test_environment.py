"""Settings from variables: what fits is taken, what does not is told in one sentence, secrets never."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from tidemill import ConfigurationError, Secret
from tidemill_apps.articles import settings as articles
from tidemill_apps.common.environment import Settings, application, read, told, warn_of_unread
from tidemill_apps.music import settings as music

PASSWORD, TOKEN = "hunter2", "sesame"


class Inner(Settings, frozen=True, kw_only=True):
    url: str = "http://127.0.0.1"
    token: Annotated[str, Secret] = ""


class Sample(Settings, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="a name, such as 潮汐")]
    batch_size: Annotated[int, Meta(ge=1, le=100)] = 10
    seconds: Annotated[float, Meta(gt=0)] = 60.0
    enabled: bool = True
    kind: Literal["gemini", "openai"] = "gemini"
    limit: int | None = None
    admins: tuple[str, ...] = ()
    password: Annotated[str, Secret] = ""
    server: Inner = Inner()


def test_every_kind_of_value_is_read_from_its_variable() -> None:
    environment = {
        "MUSIC_NAME": "潮汐",
        "MUSIC_BATCH_SIZE": " 25 ",
        "MUSIC_SECONDS": "0.5",
        "MUSIC_ENABLED": "false",
        "MUSIC_KIND": "openai",
        "MUSIC_LIMIT": "7",
        "MUSIC_ADMINS": "ann, 李雷,,",
        "MUSIC_PASSWORD": PASSWORD,
        "MUSIC_SERVER_URL": "http://music.example",
        "MUSIC_SERVER_TOKEN": TOKEN,
    }
    assert read(Sample, "MUSIC_", environment) == Sample(
        name="潮汐",
        batch_size=25,
        seconds=0.5,
        enabled=False,
        kind="openai",
        limit=7,
        admins=("ann", "李雷"),
        password=PASSWORD,
        server=Inner(url="http://music.example", token=TOKEN),
    )


def test_what_is_not_set_or_empty_keeps_its_default() -> None:
    assert read(Sample, "MUSIC_", {"MUSIC_NAME": "a", "MUSIC_BATCH_SIZE": ""}) == Sample(name="a")


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        (
            "BATCH_SIZE",
            "ten",
            "must be a whole number from 1 to 100, is 'ten'; set such a value, or leave it out for 10",
        ),
        (
            "BATCH_SIZE",
            "0",
            "must be a whole number from 1 to 100, is '0'; set such a value, or leave it out for 10",
        ),
        (
            "SECONDS",
            "-1",
            "must be a number above 0, is '-1'; set such a value, or leave it out for 60.0",
        ),
        (
            "ENABLED",
            "perhaps",
            "must be true or false, is 'perhaps'; set such a value, or leave it out for True",
        ),
        (
            "KIND",
            "claude",
            "must be gemini or openai, is 'claude'; set such a value, or leave it out for 'gemini'",
        ),
        ("LIMIT", "many", "must be a whole number, is 'many'; set such a value, or leave it out for None"),
        (
            "KIND",
            "sk-secret-key-in-the-wrong-place",
            "must be gemini or openai, is ***; set such a value, or leave it out for 'gemini'",
        ),
    ],
)
def test_what_does_not_fit_is_told_in_one_sentence(variable: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(Sample, "MUSIC_", {"MUSIC_NAME": "a", f"MUSIC_{variable}": text})
    assert str(caught.value) == f"MUSIC_{variable}: {sentence}"
    assert caught.value.__cause__ is None


def test_what_must_be_set_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^MUSIC_NAME is not set; set it to a name, such as 潮汐$"):
        read(Sample, "MUSIC_", {})


def test_a_variable_that_nobody_reads_is_told_by_its_name_alone(caplog: pytest.LogCaptureFixture) -> None:
    environment = {
        "MUSIC_BATCHSIZE": PASSWORD,
        "MUSIC_SERVR_TOKEN": TOKEN,
        "MUSIC_SERVICE_HOST": "10.0.0.1",  # Kubernetes, of a service that is called music
        "MUSIC_EMPTY": " ",
        "MUSIC_NAME": "潮汐",
        "MUSIC_SERVER_URL": "http://music.example",
        "MUSICAL": "1",
        "TIDEMILL_MUSIC_FULL": "1",
    }
    warn_of_unread(Sample, "MUSIC_", environment)
    assert caplog.messages == [
        "MUSIC_BATCHSIZE is set and nobody reads it; did you mean MUSIC_BATCH_SIZE?",
        "MUSIC_SERVICE_HOST is set and nobody reads it; the application's README lists those there are",
        "MUSIC_SERVR_TOKEN is set and nobody reads it; did you mean MUSIC_SERVER_TOKEN?",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


@pytest.mark.parametrize(
    ("application_settings", "misspelt", "meant"),
    [
        (articles, "ARTICLES_EMBEDING_KEY", "ARTICLES_EMBEDDINGS_KEY"),
        (music, "MUSIC_CHAT_MODLE", "MUSIC_CHAT_MODEL"),
    ],
)
def test_an_application_tells_once_of_a_variable_that_is_misspelt(
    application_settings: ModuleType, misspelt: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    application_settings.from_environment({misspelt: "sesame"})
    assert caplog.messages == [f"{misspelt} is set and nobody reads it; did you mean {meant}?"]


def test_secrets_are_never_shown() -> None:
    settings = Sample(name="潮汐", password=PASSWORD, server=Inner(token=TOKEN))
    assert "password=***" in repr(settings)
    assert "password=''" in repr(Sample(name="a"))
    for text in (repr(settings), str(settings), str(told(settings))):
        assert PASSWORD not in text
        assert TOKEN not in text
        assert "潮汐" in text


@pytest.fixture
def httpx2_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("httpx2")
    level = logger.level
    logger.setLevel(logging.NOTSET)
    yield logger
    logger.setLevel(level)


def test_clients_do_not_tell_of_every_call_unless_somebody_wants_it(httpx2_logger: logging.Logger) -> None:
    application("memory://")
    assert not httpx2_logger.isEnabledFor(logging.INFO)
    httpx2_logger.setLevel(logging.DEBUG)
    application("memory://")
    assert httpx2_logger.isEnabledFor(logging.DEBUG)


def test_jobs_are_where_the_environment_says_else_where_the_application_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TIDEMILL_URL", "REDIS_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert str(application("sqlite:///music-jobs.db").url) == "sqlite:///music-jobs.db"
    monkeypatch.setenv("TIDEMILL_URL", "memory://")
    assert str(application("sqlite:///music-jobs.db").url) == "memory://"
    assert list(tmp_path.iterdir()) == []
