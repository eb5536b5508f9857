"""The `.env.example` of an application has every setting, and a copy of it changes nothing (X5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import fields

import tidemill_apps
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.articles.settings import load_settings as articles_settings
from tidemill_apps.common.settings import EnvironmentSettings
from tidemill_apps.feeds.settings import FeedsSettings
from tidemill_apps.feeds.settings import load_settings as feeds_settings
from tidemill_apps.music.settings import MusicSettings
from tidemill_apps.music.settings import load_settings as music_settings
from tidemill_apps.podcasts.settings import PodcastsSettings
from tidemill_apps.podcasts.settings import load_settings as podcasts_settings

ROOT = Path(tidemill_apps.__file__).parent
SHARED = {
    "music": {"TIDEMILL_URL", "GEMINI_API_KEY", "OPENAI_API_KEY"},
    "articles": {"TIDEMILL_URL", "GEMINI_API_KEY", "OPENAI_API_KEY"},
    "feeds": {"TIDEMILL_URL", "WEBHOOK_SECRET"},
    "podcasts": {"TIDEMILL_URL", "OPENAI_API_KEY"},
}
APPLICATIONS = [
    pytest.param("music", MusicSettings(), music_settings, id="music"),
    pytest.param("articles", ArticlesSettings(), articles_settings, id="articles"),
    pytest.param("feeds", FeedsSettings(), feeds_settings, id="feeds"),
    pytest.param("podcasts", PodcastsSettings(), podcasts_settings, id="podcasts"),
]


def example(application: str) -> dict[str, str]:
    text = (ROOT / application / ".env.example").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [re.fullmatch(r"([A-Z0-9_]+)=(\S*)", line) for line in lines]
    assert all(found), f"no variable: {lines[found.index(None)]}" if None in found else ""
    pairs = [(match[1], match[2]) for match in found if match]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def variables(settings: EnvironmentSettings, prefix: str) -> Iterator[str]:
    for field in fields(type(settings)):
        name, value = f"{prefix}{field.name}".upper(), getattr(settings, field.name)
        if isinstance(value, EnvironmentSettings):
            yield from variables(value, f"{name}_")
        else:
            yield name


@pytest.mark.parametrize(("application", "defaults", "_"), APPLICATIONS)
def test_every_setting_is_in_it_x5(application: str, defaults: EnvironmentSettings, _: object) -> None:
    expected = set(variables(defaults, f"{application}_"))
    assert example(application).keys() == expected | SHARED[application]


@pytest.mark.parametrize(("application", "defaults", "from_environment"), APPLICATIONS)
def test_a_copy_changes_nothing_x5(
    application: str, defaults: EnvironmentSettings, from_environment: object
) -> None:
    assert callable(from_environment)
    assert from_environment(example(application)) == from_environment({})
    assert from_environment({}) == defaults


@pytest.mark.parametrize("application", ["music", "articles", "feeds", "podcasts"])
def test_secrets_have_no_value_x5(application: str) -> None:
    secret = re.compile(r"KEY$|PASSWORD$|TOKEN$|SECRET$")
    assert [name for name, value in example(application).items() if secret.search(name) and value] == []
