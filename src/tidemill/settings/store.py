"""Which store the settings name."""

from __future__ import annotations

from pathlib import Path

from tidemill.errors import ConfigurationError
from tidemill.settings.environment import Ignored
from tidemill.settings.settings import Settings
from tidemill.urls import StoreUrl, mask

SHARED = ("REDIS_URL", "DATABASE_URL")
"""These often stand for another program's database."""


def store_url(settings: Settings) -> StoreUrl:
    """A URL that cannot be used is refused naming where it came from."""
    url, origin = settings.value("url"), settings.origin("url")
    if origin.removeprefix("environment ") in SHARED:
        return _shared(url, origin)
    return StoreUrl.parse(url, "url" if origin in ("argument", "default") else f"url from {origin}")


def _shared(url: str, origin: str) -> StoreUrl:
    """It may not be meant for us: say how to choose another one."""
    remedy = f"set TIDEMILL_URL, which wins over {origin.removeprefix('environment ')}"
    try:
        found = StoreUrl.parse(url, f"url from {origin}")
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}; {remedy}") from None
    if found.scheme == "sqlite":
        # Tidemill brings its own SQLite; two copies of it in one process on one file damage the file.
        raise ConfigurationError(
            f"url from {origin}: {found} may be another program's database, where jobs must not go; {remedy}"
        )
    return found


def overruled_url(settings: Settings, used: StoreUrl) -> Ignored | None:
    """A URL that is set, while the application was made with another store."""
    url, origin = settings.set_outside("url")
    if origin == "default":
        return None
    try:
        said = StoreUrl.parse(url)
        shown = str(said)
    except ConfigurationError:
        said, shown = None, mask(url)
    if said is not None and _place(said) == _place(used):
        return None
    where = origin.removeprefix("environment ") if origin.startswith("environment ") else f"url in {origin}"
    return Ignored(
        where,
        f"it says {shown}, but the application was made with {used}, which wins; leave that out in "
        "Tidemill(…) to use what is set",
    )


def _place(url: StoreUrl) -> tuple[str, Path | str]:
    return url.scheme, Path(url.path).absolute() if url.path else url.server
