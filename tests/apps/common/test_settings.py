"""Settings from environment variables: valid ones are used, invalid ones give a one-sentence error without
secrets."""

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
from tidemill_apps.common.settings import (
    EnvironmentSettings,
    create_app,
    read_settings,
    redact_values,
    warn_unknown_variables,
)
from tidemill_apps.music import settings as music

PASSWORD, TOKEN = "hunter2", "sesame"


class Inner(EnvironmentSettings, frozen=True, kw_only=True):
    url: str = "http://127.0.0.1"
    token: Annotated[str, Secret] = ""


class Sample(EnvironmentSettings, frozen=True, kw_only=True):
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
    assert read_settings(Sample, "MUSIC_", environment) == Sample(
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


def test_an_unset_or_empty_variable_keeps_its_default() -> None:
    assert read_settings(Sample, "MUSIC_", {"MUSIC_NAME": "a", "MUSIC_BATCH_SIZE": ""}) == Sample(name="a")


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
def test_an_invalid_value_is_reported_with_its_variable(variable: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_settings(Sample, "MUSIC_", {"MUSIC_NAME": "a", f"MUSIC_{variable}": text})
    assert str(caught.value) == f"MUSIC_{variable}: {sentence}"
    assert caught.value.__cause__ is None


def test_a_missing_required_variable_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^MUSIC_NAME is not set; set it to a name, such as 潮汐$"):
        read_settings(Sample, "MUSIC_", {})


def test_an_unknown_variable_is_logged_without_its_value(caplog: pytest.LogCaptureFixture) -> None:
    environment = {
        "MUSIC_BATCHSIZE": PASSWORD,
        "MUSIC_SERVR_TOKEN": TOKEN,
        "MUSIC_SERVICE_HOST": "10.0.0.1",  # set by Kubernetes for a service named music
        "MUSIC_EMPTY": " ",
        "MUSIC_NAME": "潮汐",
        "MUSIC_SERVER_URL": "http://music.example",
        "MUSICAL": "1",
        "TIDEMILL_MUSIC_FULL": "1",
    }
    warn_unknown_variables(Sample, "MUSIC_", environment)
    assert caplog.messages == [
        "MUSIC_BATCHSIZE is set and has no effect; did you mean MUSIC_BATCH_SIZE?",
        "MUSIC_SERVICE_HOST is set and has no effect; the application's README lists those there are",
        "MUSIC_SERVR_TOKEN is set and has no effect; did you mean MUSIC_SERVER_TOKEN?",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


@pytest.mark.parametrize(
    ("application_settings", "misspelt", "meant"),
    [
        (articles, "ARTICLES_EMBEDING_KEY", "ARTICLES_EMBEDDINGS_KEY"),
        (music, "MUSIC_CHAT_MODLE", "MUSIC_CHAT_MODEL"),
    ],
)
def test_a_misspelt_variable_is_logged_once(
    application_settings: ModuleType, misspelt: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    application_settings.load_settings({misspelt: "sesame"})
    assert caplog.messages == [f"{misspelt} is set and has no effect; did you mean {meant}?"]


def test_secrets_are_never_shown() -> None:
    settings = Sample(name="潮汐", password=PASSWORD, server=Inner(token=TOKEN))
    assert "password=***" in repr(settings)
    assert "password=''" in repr(Sample(name="a"))
    for text in (repr(settings), str(settings), str(redact_values(settings))):
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


def test_http_clients_log_single_requests_only_at_debug_level(httpx2_logger: logging.Logger) -> None:
    create_app("memory://")
    assert not httpx2_logger.isEnabledFor(logging.INFO)
    httpx2_logger.setLevel(logging.DEBUG)
    create_app("memory://")
    assert httpx2_logger.isEnabledFor(logging.DEBUG)


def test_jobs_are_where_the_environment_says_else_where_the_application_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TIDEMILL_URL", "REDIS_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert str(create_app("sqlite:///music-jobs.db").url) == "sqlite:///music-jobs.db"
    monkeypatch.setenv("TIDEMILL_URL", "memory://")
    assert str(create_app("sqlite:///music-jobs.db").url) == "memory://"
    assert list(tmp_path.iterdir()) == []
