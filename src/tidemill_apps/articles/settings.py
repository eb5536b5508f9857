"""What can be set, by variables that begin with ARTICLES_, or in `[applications.articles]` of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from tidemill import ConfigurationError, Secret, TimeOfDay
from tidemill_apps.common.environment import Settings, read, warn_of_unread
from tidemill_apps.common.providers.account import Account, Address
from tidemill_apps.common.providers.chosen import account
from tidemill_apps.common.toml import NOTHING, Table, naming

PREFIX = "ARTICLES_"
Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]


class ArticlesSettings(Settings, frozen=True, kw_only=True):
    """embeddings: who makes the vectors; without a key and an address, the simulator.
    inputs_per_call, tokens_per_call: what the provider takes in one call.
    requests_per_window, tokens_per_window: what the account allows in `window_seconds`; 0 is no limit.
    jitter: seconds within which a call is on its way; texts are read and cut before it is made.
    linger: how long an article waits for others to share its call.
    tokenizer: the model's tokenizer.json, to count as the model does; an estimate without it.
    queue_limit: articles that may wait; content_limit: characters of one;
    triggers_per_minute: how often one user may ask for an embedding by hand.
    nightly: when every article is embedded again, as a cron expression; never when it is empty."""

    database_url: str = "sqlite:///articles.db"
    table: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="the name of a table")] = (
        "tb_post"
    )

    qdrant_url: Address = ""
    qdrant_key: Annotated[str, Secret] = ""
    qdrant_path: str = "articles-vectors"
    collection: Annotated[str, Meta(min_length=1)] = "blog_posts"

    embeddings: Account = Account()
    inputs_per_call: Count = 96
    tokens_per_call: Count = 50_000
    requests_per_window: Amount = 100
    tokens_per_window: Amount = 0
    window_seconds: Seconds = 60.0
    jitter: Seconds = 2.0
    concurrency: Count = 2
    timeout: Seconds = 120.0
    retry_seconds: Seconds = 5.0
    linger: Annotated[float, Meta(ge=0)] = 0.5

    chunk_tokens: Annotated[int, Meta(ge=10)] = 500
    chunk_overlap: Amount = 100
    tokenizer: str = ""

    queue_limit: Count = 10_000
    content_limit: Count = 200_000
    triggers_per_minute: Count = 30
    minding_seconds: Seconds = 30.0
    sweeping_seconds: Seconds = 600.0
    nightly: str = ""
    nightly_zone: str = "UTC"

    def checked(self) -> ArticlesSettings:
        """As they are, or the one sentence that says which two do not go together."""
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
        if problem := TimeOfDay(0, 0, self.nightly_zone).problem():
            raise ConfigurationError(f"{PREFIX}NIGHTLY_ZONE: {problem.removeprefix('zone: ')}")
        return self


def from_environment(environ: Mapping[str, str] | None = None, toml: Table = NOTHING) -> ArticlesSettings:
    environment = os.environ if environ is None else environ
    warn_of_unread(ArticlesSettings, PREFIX, environment)
    found = read(ArticlesSettings, PREFIX, environment, toml)
    embeddings = account(f"{PREFIX}EMBEDDINGS_", environment, toml.inner("embeddings"))
    with naming(PREFIX, environment, toml):
        return replace(found, embeddings=embeddings).checked()
