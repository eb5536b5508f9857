"""Settings of the feeds application. They come from the variables FEEDS_…, or from the table
`[applications.feeds]` of tidemill.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from tidemill import ConfigurationError
from tidemill_apps.common.model_clients import HttpUrl
from tidemill_apps.common.settings import (
    EMPTY_TABLE,
    ApplicationToml,
    EnvironmentSettings,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    name_toml_keys,
    read_settings,
    warn_unknown_variables,
)
from tidemill_apps.feeds.fetcher import FetchLimits

PREFIX = "FEEDS_"
MAX_INTERVAL_MINUTES = 10_080
RefreshInterval = Annotated[int, Meta(ge=1, le=MAX_INTERVAL_MINUTES)]


class FeedsSettings(EnvironmentSettings, frozen=True, kw_only=True):
    """The settings and their defaults. Durations are seconds, except `default_interval`.

    - `contact`: a URL or an email address in the User-Agent, so that a site can reach the operator.
    - `concurrency`: the most fetches at the same time, over all workers.
    - `slow_concurrency`: the most fetches at the same time of feeds whose last fetch timed out.
    - `site_seconds`: minimum time between two requests to one site.
    - `jitter`: how late after its claim a request may reach the site.
    - `independent_sites`: domains whose subdomains are sites of their own, such as blogspot.com.
    - `allowed_addresses`: networks, hosts or host:port that are fetched although they are not public.
    - `default_interval`: minutes between two refreshes of a new feed.
    - `articles_per_feed`: how many articles of a feed are kept; 0 for all.
    - `check_seconds`: how often a worker looks for feeds without a schedule.
    - `webhook_url`: receives `feed.refreshed`; empty for no webhook."""

    database_url: str = "sqlite:///feeds.db"
    contact: str = ""
    concurrency: PositiveInt = 5
    slow_concurrency: PositiveInt = 2
    attempts: PositiveInt = 3
    site_seconds: PositiveFloat = 1.0
    jitter: PositiveFloat = 1.0
    independent_sites: tuple[str, ...] = ()
    allowed_addresses: tuple[str, ...] = ()
    fetch_seconds: PositiveFloat = 30.0
    max_bytes: PositiveInt = 10_000_000
    max_redirects: NonNegativeInt = 5
    default_interval: RefreshInterval = 60
    articles_per_feed: NonNegativeInt = 1000
    check_seconds: PositiveFloat = 300.0
    webhook_url: HttpUrl = ""

    def checked(self) -> FeedsSettings:
        """Returns the settings. Raises ConfigurationError if two of them contradict each other."""
        if self.slow_concurrency > self.concurrency:
            raise ConfigurationError(
                f"{PREFIX}SLOW_CONCURRENCY: must be at most {PREFIX}CONCURRENCY, {self.concurrency}, is "
                f"{self.slow_concurrency}; lower it"
            )
        return self

    @property
    def fetch_limits(self) -> FetchLimits:
        contact = f"; +{self.contact}" if self.contact else ""
        return FetchLimits(
            seconds=self.fetch_seconds,
            max_bytes=self.max_bytes,
            max_redirects=self.max_redirects,
            user_agent=f"Tidemill-Feeds/1.0 (feed reader{contact})",
            allowed_addresses=self.allowed_addresses,
        )


def load_settings(
    environ: Mapping[str, str] | None = None, toml: ApplicationToml = EMPTY_TABLE
) -> FeedsSettings:
    environment = os.environ if environ is None else environ
    warn_unknown_variables(FeedsSettings, PREFIX, environment)
    found = read_settings(FeedsSettings, PREFIX, environment, toml)
    with name_toml_keys(PREFIX, environment, toml):
        return found.checked()
