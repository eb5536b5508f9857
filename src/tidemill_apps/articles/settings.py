"""Settings of the articles application. They come from the variables ARTICLES_…, or from the table
`[applications.articles]` of tidemill.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from tidemill import ConfigurationError, Secret
from tidemill_apps.common.model_clients import HttpUrl, ProviderAccount
from tidemill_apps.common.providers import read_account
from tidemill_apps.common.settings import (
    EMPTY_TABLE,
    ApplicationToml,
    EnvironmentSettings,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check_zone,
    name_toml_keys,
    read_settings,
    warn_unknown_variables,
)

PREFIX = "ARTICLES_"


class ArticlesSettings(EnvironmentSettings, frozen=True, kw_only=True):
    """The settings and their defaults. Durations are seconds.

    - `embeddings`: the account at the embeddings provider; a simulator if key and address are empty.
    - `inputs_per_call`, `tokens_per_call`: how much the provider accepts in one call.
    - `requests_per_window`, `tokens_per_window`: limits per `window_seconds`; 0 for no limit.
    - `jitter`: how late after its claim a call may reach the provider.
    - `linger`: how long an article waits for other articles that share its call.
    - `tokenizer`: path of the model's tokenizer.json; if empty, token counts are estimated.
    - `queue_limit`: maximum number of waiting articles.
    - `content_limit`: maximum number of characters of an article.
    - `triggers_per_minute`: how often one user may request embeddings.
    - `nightly`: cron expression for embedding every article again; empty for never.
    """

    database_url: str = "sqlite:///articles.db"
    table: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="the name of a table")] = (
        "tb_post"
    )

    qdrant_url: HttpUrl = ""
    qdrant_key: Annotated[str, Secret] = ""
    qdrant_path: str = "articles-vectors"
    collection: Annotated[str, Meta(min_length=1)] = "blog_posts"

    embeddings: ProviderAccount = ProviderAccount()
    inputs_per_call: PositiveInt = 96
    tokens_per_call: PositiveInt = 50_000
    requests_per_window: NonNegativeInt = 100
    tokens_per_window: NonNegativeInt = 0
    window_seconds: PositiveFloat = 60.0
    jitter: PositiveFloat = 2.0
    concurrency: PositiveInt = 2
    timeout: PositiveFloat = 120.0
    retry_seconds: PositiveFloat = 5.0
    linger: NonNegativeFloat = 0.5

    chunk_tokens: Annotated[int, Meta(ge=10)] = 500
    chunk_overlap: NonNegativeInt = 100
    tokenizer: str = ""

    queue_limit: PositiveInt = 10_000
    content_limit: PositiveInt = 200_000
    triggers_per_minute: PositiveInt = 30
    reconcile_seconds: PositiveFloat = 30.0
    sweep_seconds: PositiveFloat = 600.0
    nightly: str = ""
    nightly_zone: str = "UTC"

    def checked(self) -> ArticlesSettings:
        """Returns the settings. Raises ConfigurationError if two of them contradict each other."""
        if 2 * self.chunk_overlap >= self.chunk_tokens:
            raise ConfigurationError(
                f"{PREFIX}CHUNK_OVERLAP: must be less than half of {PREFIX}CHUNK_TOKENS, "
                f"{self.chunk_tokens}, is {self.chunk_overlap}; choose a smaller one"
            )
        if self.tokens_per_call < self.chunk_tokens:
            raise ConfigurationError(
                f"{PREFIX}TOKENS_PER_CALL: must be {self.chunk_tokens} or more, or no call could take a "
                f"chunk, is {self.tokens_per_call}; raise it, or lower {PREFIX}CHUNK_TOKENS"
            )
        if 0 < self.tokens_per_window < self.tokens_per_call:
            raise ConfigurationError(
                f"{PREFIX}TOKENS_PER_CALL: must be at most {PREFIX}TOKENS_PER_WINDOW, "
                f"{self.tokens_per_window}, or no call could be made, is {self.tokens_per_call}; lower it"
            )
        check_zone(f"{PREFIX}NIGHTLY_ZONE", self.nightly_zone)
        return self


def load_settings(
    environ: Mapping[str, str] | None = None, toml: ApplicationToml = EMPTY_TABLE
) -> ArticlesSettings:
    environment = os.environ if environ is None else environ
    warn_unknown_variables(ArticlesSettings, PREFIX, environment)
    found = read_settings(ArticlesSettings, PREFIX, environment, toml)
    embeddings = read_account(f"{PREFIX}EMBEDDINGS_", environment, toml.subtable("embeddings"))
    with name_toml_keys(PREFIX, environment, toml):
        return replace(found, embeddings=embeddings).checked()
