"""Settings of the podcasts application. They come from the variables PODCASTS_…, or from the table
`[applications.podcasts]` of tidemill.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from tidemill import ConfigurationError
from tidemill_apps.common.object_storage import StorageSettings
from tidemill_apps.common.settings import (
    EMPTY_TABLE,
    ApplicationToml,
    EnvironmentSettings,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    name_toml_keys,
    read_settings,
    warn_unknown_variables,
)
from tidemill_apps.common.speech import SpeechSettings, use_openai_key

PREFIX = "PODCASTS_"
TableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="the name of a table")]


class PodcastsSettings(EnvironmentSettings, frozen=True, kw_only=True):
    """The settings and their defaults. Durations are seconds.

    - `storage`: the folder or bucket of the audio files.
    - `articles_url`, `articles_table`: the database and table of articles that can become podcasts.
    - `calls_at_once`: concurrent calls of the speech service, over all workers.
    - `characters_per_minute`, `requests_per_minute`: limits of the speech service; 0 for no limit.
    - `text_limit`: maximum number of characters of a text.
    - `regenerate_seconds`: when a failed podcast is generated once more; 0 for never.
    - `feed_rate`: requests per minute for one feed address, and for wrong addresses of one client.
    """

    database_url: str = "sqlite:///podcasts.db"
    storage: StorageSettings = StorageSettings()
    articles_url: str = ""
    articles_table: TableName = "articles"

    speech: SpeechSettings = SpeechSettings()
    calls_at_once: PositiveInt = 2
    characters_per_minute: NonNegativeInt = 0
    requests_per_minute: NonNegativeInt = 0
    jitter: PositiveFloat = 2.0

    concurrency: PositiveInt = 2
    timeout: PositiveFloat = 1800.0
    retry_seconds: PositiveFloat = 10.0
    regenerate_seconds: NonNegativeFloat = 3600.0
    reconcile_seconds: PositiveFloat = 15.0
    text_limit: PositiveInt = 200_000

    feed_title: Annotated[str, Meta(min_length=1)] = "Podcasts"
    feed_description: Annotated[str, Meta(min_length=1)] = "Texts, read aloud."
    feed_author: Annotated[str, Meta(min_length=1)] = "Tidemill"
    feed_category: Annotated[str, Meta(min_length=1)] = "News"
    feed_language: Annotated[str, Meta(pattern=r"^[a-z]{2}(-[A-Za-z]{2,4})?$")] = "en"
    feed_explicit: bool = False
    feed_rate: PositiveInt = 120
    cover: str = ""

    def checked(self) -> PodcastsSettings:
        """Returns the settings. Raises ConfigurationError if two of them contradict each other."""
        if self.speech.provider == "http" and not self.speech.url:
            raise ConfigurationError(
                f"{PREFIX}SPEECH_URL: must be the address of the speech service, is empty; set it, or set "
                f"{PREFIX}SPEECH_PROVIDER to openai or espeak"
            )
        return self


def load_settings(
    environ: Mapping[str, str] | None = None, toml: ApplicationToml = EMPTY_TABLE
) -> PodcastsSettings:
    environment = os.environ if environ is None else environ
    warn_unknown_variables(PodcastsSettings, PREFIX, environment)
    found = read_settings(PodcastsSettings, PREFIX, environment, toml)
    with name_toml_keys(PREFIX, environment, toml):
        return replace(found, speech=use_openai_key(found.speech, environment)).checked()
