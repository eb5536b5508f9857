"""Settings of the music application. They come from the variables MUSIC_…, or from the table
`[applications.music]` of tidemill.toml. Operators change `LiveSettings` at run time, in a database table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from tidemill import ConfigurationError, Secret, TimeOfDay
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
    read_settings,
    warn_unknown_variables,
)

_RESUME_AT_PATTERN = r"^(?:(\d{1,2}):(\d{2}) (\S+))?$"
_RESUME_AT_FORMAT = "a time of day and a zone, such as 16:30 Asia/Shanghai"


class CallSettings(EnvironmentSettings, frozen=True, kw_only=True):
    """The provider's limits, from variables such as MUSIC_CALLS_PER_MINUTE. Durations are seconds.

    - `per_minute`, `per_day`: maximum calls; 0 per day for no daily limit.
    - `shape`: the kind of window for the limit per minute.
    - `zone`: the time zone in which the provider's day ends.
    - `breaker_seconds`: how long a refusal without details closes the pool.
    - `jitter`: how late after its claim a call may reach the provider.
    - `midnight_seconds`: how long no calls are made before midnight, and again after it.
    """

    per_minute: PositiveInt = 5
    per_day: NonNegativeInt = 250
    shape: Literal["rolling", "paced", "bucket"] = "rolling"
    zone: str = "America/Los_Angeles"
    breaker_seconds: PositiveFloat = 120.0
    jitter: NonNegativeFloat = 0.5
    midnight_seconds: NonNegativeFloat = 300.0

    def __post_init__(self) -> None:
        check_zone("MUSIC_CALLS_ZONE", self.zone)


class SubsonicSettings(EnvironmentSettings, frozen=True, kw_only=True):
    """The music server, from variables such as MUSIC_SUBSONIC_URL. If `url` is empty, the sample songs are
    used. `auth` says whether to send a token or the password itself."""

    url: HttpUrl = ""
    user: str = ""
    password: Annotated[str, Secret] = ""
    auth: Literal["token", "password"] = "token"

    def __post_init__(self) -> None:
        for name, given in (("USER", self.user), ("PASSWORD", self.password)):
            if self.url and not given:
                raise ConfigurationError(
                    f"MUSIC_SUBSONIC_{name} is not set, and MUSIC_SUBSONIC_URL is: the music server asks who "
                    "calls; set it, or leave out the address for the sample songs"
                )


class PriceSettings(EnvironmentSettings, frozen=True, kw_only=True):
    """The prices for previews, from variables such as MUSIC_PRICE_PER_CALL. All prices are in `currency`.
    `tokens_per_song` is the assumed number of tokens per song."""

    per_call: NonNegativeFloat = 0.0
    per_1k_tokens: NonNegativeFloat = 0.0
    tokens_per_song: NonNegativeFloat = 300.0
    currency: str = "USD"


class MusicSettings(EnvironmentSettings, frozen=True, kw_only=True):
    """The settings and their defaults.

    - `chat`, `embeddings`: the provider accounts for descriptions and for vectors.
    - `metadata_starts`: how many jobs may start per minute, for each queue whose jobs describe songs.
    - `embedding_starts`: how many jobs that only embed songs may start per minute.
    - `minute_seconds`: the length of the minute in all limits per minute; the demo shortens it.
    - `call_seconds`: assumed duration of a call, for previews while no duration is known.
    - `resume_at`: when the daily quota returns, such as `16:30 Asia/Shanghai`; empty for the provider's
      midnight.
    """

    database_url: str = "sqlite:///music.db"
    chat: ProviderAccount = ProviderAccount()
    embeddings: ProviderAccount = ProviderAccount()
    subsonic: SubsonicSettings = SubsonicSettings()
    calls: CallSettings = CallSettings()
    price: PriceSettings = PriceSettings()
    metadata_starts: PositiveInt = 2
    embedding_starts: PositiveInt = 10
    minute_seconds: PositiveFloat = 60.0
    call_seconds: PositiveFloat = 5.0
    resume_at: Annotated[str, Meta(pattern=_RESUME_AT_PATTERN, description=_RESUME_AT_FORMAT)] = ""

    def __post_init__(self) -> None:
        if (resumes := self.resumes) is not None and (problem := resumes.problem()):
            remedy = "" if ";" in problem else f"; write {_RESUME_AT_FORMAT}"
            raise ConfigurationError(f"MUSIC_RESUME_AT: {problem}{remedy}")

    @property
    def resumes(self) -> TimeOfDay | None:
        found = re.fullmatch(_RESUME_AT_PATTERN, self.resume_at)
        return TimeOfDay(int(found[1]), int(found[2]), found[3]) if found and self.resume_at else None


def load_settings(
    environ: Mapping[str, str] | None = None, toml: ApplicationToml = EMPTY_TABLE
) -> MusicSettings:
    warn_unknown_variables(MusicSettings, "MUSIC_", environ)
    found = read_settings(MusicSettings, "MUSIC_", environ, toml)
    return replace(
        found,
        chat=read_account("MUSIC_CHAT_", environ, toml.subtable("chat")),
        embeddings=read_account("MUSIC_EMBEDDINGS_", environ, toml.subtable("embeddings")),
    )


class LiveSettings(Struct, frozen=True):
    """The settings that operators change at run time. Each field is a row of the table system_settings."""

    queue_concurrency: Annotated[
        int, Meta(ge=1, le=100, description="jobs of one queue at once, from 1 to 100")
    ] = 1
    queue_rate_limit_max: Annotated[
        int, Meta(ge=1, le=10_000, description="metadata jobs started per minute, from 1 to 10000")
    ] = 2
    queue_batch_size: Annotated[int, Meta(ge=1, le=100, description="songs in one job, from 1 to 100")] = 10
