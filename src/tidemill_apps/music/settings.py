"""What the music application is told by its environment, by variables that begin with MUSIC_, or by the table
`[applications.music]` of tidemill.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from tidemill import ConfigurationError, Secret, TimeOfDay
from tidemill_apps.common.environment import Settings, read, warn_of_unread
from tidemill_apps.common.providers.account import Account, Address
from tidemill_apps.common.providers.chosen import account
from tidemill_apps.common.toml import NOTHING, Table

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Natural = Annotated[int, Meta(ge=0)]
Counted = Annotated[int, Meta(ge=1)]

_RESUME_AT = r"^(?:(\d{1,2}):(\d{2}) (\S+))?$"
_RESUME_AT_SAYS = "a time of day and a zone, such as 16:30 Asia/Shanghai"


class CallSettings(Settings, frozen=True, kw_only=True):
    """What the provider allows: MUSIC_CALLS_PER_MINUTE and so on. `per_day` 0: no limit by the day.
    `breaker_seconds`: how long a refusal that says nothing closes everything. `jitter` is
    that of a pool. `midnight_seconds`: for so long before and after the turn of the day no call is made,
    because the provider's clock is another one."""

    per_minute: Counted = 5
    per_day: Natural = 250
    shape: Literal["rolling", "paced", "bucket"] = "rolling"
    zone: str = "America/Los_Angeles"
    breaker_seconds: Positive = 120.0
    jitter: NotNegative = 0.5
    midnight_seconds: NotNegative = 300.0

    def __post_init__(self) -> None:
        if problem := TimeOfDay(0, 0, self.zone).problem():
            raise ConfigurationError(f"MUSIC_CALLS_ZONE: {problem.removeprefix('zone: ')}")


class SubsonicSettings(Settings, frozen=True, kw_only=True):
    """Where the songs come from: MUSIC_SUBSONIC_URL and so on. Without an address, the sample songs."""

    url: Address = ""
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


class PriceSettings(Settings, frozen=True, kw_only=True):
    """For previews: MUSIC_PRICE_PER_CALL, MUSIC_PRICE_PER_1K_TOKENS, in `currency`."""

    per_call: NotNegative = 0.0
    per_1k_tokens: NotNegative = 0.0
    tokens_per_song: NotNegative = 300.0
    currency: str = "USD"


class MusicSettings(Settings, frozen=True, kw_only=True):
    """`minute_seconds` is the window of job starts and of calls. `resume_at`: when a day's quota is back,
    where that is not the turn of the provider's day. `call_seconds`: what one call is expected to take, for
    previews before any was made."""

    database_url: str = "sqlite:///music.db"
    chat: Account = Account()
    embeddings: Account = Account()
    subsonic: SubsonicSettings = SubsonicSettings()
    calls: CallSettings = CallSettings()
    price: PriceSettings = PriceSettings()
    metadata_starts: Counted = 2
    embedding_starts: Counted = 10
    minute_seconds: Positive = 60.0
    call_seconds: Positive = 5.0
    resume_at: Annotated[str, Meta(pattern=_RESUME_AT, description=_RESUME_AT_SAYS)] = ""

    def __post_init__(self) -> None:
        if (resumes := self.resumes) is not None and (problem := resumes.problem()):
            remedy = "" if ";" in problem else f"; write {_RESUME_AT_SAYS}"
            raise ConfigurationError(f"MUSIC_RESUME_AT: {problem}{remedy}")

    @property
    def resumes(self) -> TimeOfDay | None:
        found = re.fullmatch(_RESUME_AT, self.resume_at)
        return TimeOfDay(int(found[1]), int(found[2]), found[3]) if found and self.resume_at else None


def from_environment(environ: Mapping[str, str] | None = None, toml: Table = NOTHING) -> MusicSettings:
    warn_of_unread(MusicSettings, "MUSIC_", environ)
    found = read(MusicSettings, "MUSIC_", environ, toml)
    return replace(
        found,
        chat=account("MUSIC_CHAT_", environ, toml.inner("chat")),
        embeddings=account("MUSIC_EMBEDDINGS_", environ, toml.inner("embeddings")),
    )
