"""Which store the settings name."""

from __future__ import annotations

from tidemill.errors import ConfigurationError
from tidemill.settings.settings import Settings
from tidemill.urls import StoreUrl


def store_url(settings: Settings) -> StoreUrl:
    """A URL that cannot be used is refused naming where it came from."""
    url, origin = settings.value("url"), settings.origin("url")
    if origin in ("environment REDIS_URL", "environment DATABASE_URL"):
        return _shared(url, origin)
    return StoreUrl.parse(url, "url" if origin in ("argument", "default") else f"url from {origin}")


def _shared(url: str, origin: str) -> StoreUrl:
    """These variables often stand for another program's database: say how to choose another one."""
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
