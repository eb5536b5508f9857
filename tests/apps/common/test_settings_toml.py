"""Settings of an application in tidemill.toml: environment variables override them, and secrets are
refused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

from tidemill import ConfigurationError, Secret, Tidemill
from tidemill_apps.articles.settings import load_settings as articles_from
from tidemill_apps.common.settings import ApplicationToml, EnvironmentSettings, load_table, read_settings
from tidemill_apps.music.settings import load_settings as music_from

WHERE, PASSWORD = "tidemill.toml, applications.music", "hunter2"


class Inner(EnvironmentSettings, frozen=True, kw_only=True):
    url: str = "http://127.0.0.1"
    token: Annotated[str, Secret] = ""


class Sample(EnvironmentSettings, frozen=True, kw_only=True):
    name: str
    batch_size: Annotated[int, Meta(ge=1, le=100)] = 10
    seconds: float = 60.0
    enabled: bool = True
    admins: tuple[str, ...] = ()
    server: Inner = Inner()


def taken(values: Any, environment: dict[str, str] | None = None) -> Sample:
    return read_settings(Sample, "MUSIC_", environment or {}, ApplicationToml(WHERE, values))


def sentence(values: Any, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        taken(values, environment)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_values_are_of_their_types_and_nested_as_settings_are() -> None:
    values = {
        "name": "潮汐",
        "batch_size": 25,
        "seconds": 2,
        "enabled": False,
        "admins": ["ann", "李雷"],
        "server": {"url": "http://music.example"},
    }
    assert taken(values) == Sample(
        name="潮汐",
        batch_size=25,
        seconds=2.0,
        enabled=False,
        admins=("ann", "李雷"),
        server=Inner(url="http://music.example"),
    )


def test_a_variable_is_stronger_and_an_empty_one_is_none() -> None:
    values = {"name": "潮汐", "batch_size": 25, "server": {"url": "http://a.example"}}
    environment = {"MUSIC_BATCH_SIZE": "7", "MUSIC_NAME": "", "MUSIC_SERVER_URL": "http://b.example"}
    assert taken(values, environment) == Sample(
        name="潮汐", batch_size=7, server=Inner(url="http://b.example")
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            {"name": "a", "batch_size": 0},
            (
                f"{WHERE}.batch_size: must be a whole number from 1 to 100, is 0; set such a value, "
                "or leave it out for 10"
            ),
        ),
        (
            {"name": "a", "batch_size": 2.5},
            (
                f"{WHERE}.batch_size: must be a whole number from 1 to 100, is 2.5; set such a value, "
                "or leave it out for 10"
            ),
        ),
        ({"name": "a", "batch_siez": 1}, f"{WHERE}: unknown key 'batch_siez'; did you mean 'batch_size'?"),
        ({"name": "a", "server": {"uri": "x"}}, f"{WHERE}.server: unknown key 'uri'; did you mean 'url'?"),
        (
            {"name": "a", "server": 7},
            f"{WHERE}.server must be a table; write [applications.music.server] and its keys below",
        ),
        (
            {"name": "a", "server": {"token": PASSWORD}},
            (
                f"{WHERE}.server.token is a secret, and secrets come by the environment only; remove it from "
                "the file and set MUSIC_SERVER_TOKEN"
            ),
        ),
        (
            {"name": "a", "server": {"url": f"postgresql://ann:{PASSWORD}@host/songs"}},
            (
                f"{WHERE}.server.url holds a user name, a password or options, and secrets come by the "
                "environment only; remove it from the file and set MUSIC_SERVER_URL"
            ),
        ),
    ],
)
def test_a_wrong_value_is_named_by_its_toml_key(values: dict[str, Any], says: str) -> None:
    assert sentence(values) == says
    assert PASSWORD not in says


def test_a_wrong_variable_is_named_by_its_name() -> None:
    values = {"name": "a", "batch_size": 5}
    assert sentence(values, {"MUSIC_BATCH_SIZE": "ten"}).startswith("MUSIC_BATCH_SIZE: must be")
    assert sentence({}) == "MUSIC_NAME is not set; set it to text"


def test_checks_of_an_application_name_the_place_too() -> None:
    """Each setting is named by the place of its value."""
    toml = ApplicationToml("tidemill.toml, applications.articles", {"chunk_tokens": 100, "chunk_overlap": 60})
    with pytest.raises(ConfigurationError, match=r"^tidemill\.toml, applications\.articles\.chunk_overlap: "):
        articles_from({}, toml)
    with pytest.raises(
        ConfigurationError, match=r"^ARTICLES_CHUNK_OVERLAP: .* applications\.articles\.chunk_tokens, 100"
    ):
        articles_from({"ARTICLES_CHUNK_OVERLAP": "70"}, toml)
    zone = ApplicationToml(WHERE, {"calls": {"zone": "Mars/Olympus"}})
    with pytest.raises(ConfigurationError, match=r"^tidemill\.toml, applications\.music\.calls\.zone: "):
        music_from({}, zone)


@pytest.mark.parametrize(("file", "above"), [("tidemill.toml", ""), ("pyproject.toml", "tool.tidemill.")])
def test_the_applications_read_their_tables(
    file: str, above: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text(
        f"[{above}applications.music]\nmetadata_starts = 4\n"
        f"[{above}applications.music.calls]\nper_minute = 7\n"
        f'[{above}applications.music.chat]\nprovider = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n'
        f"[{above}applications.articles]\nconcurrency = 3\nembeddings = {{ dimensions = 384 }}\n"
    )
    app = Tidemill("memory://")
    music = music_from({"MUSIC_CALLS_PER_DAY": "9"}, load_table(app, "music"))
    assert (music.metadata_starts, music.calls.per_minute, music.calls.per_day) == (4, 7, 9)
    assert (music.chat.provider, music.chat.base_url) == ("openai", "http://127.0.0.1:1/v1")
    articles = articles_from({}, load_table(app, "articles"))
    assert (articles.concurrency, articles.embeddings.dimensions) == (3, 384)
    assert load_table(app, "shop").values == {}
