"""Where the store is: a URL, read and never shown with its secrets."""

from __future__ import annotations

import re
from typing import Self
from urllib.parse import unquote, urlsplit

import msgspec

from tidemill.errors import ConfigurationError

DEFAULT_URL = "sqlite:///tidemill.db"

_EXAMPLES = {"memory": "memory://", "sqlite": "sqlite:///tidemill.db or sqlite:////var/lib/tidemill.db"}
_LATER = ("redis", "rediss", "redis+cluster", "postgresql", "postgres", "amqp", "amqps")


class StoreUrl(msgspec.Struct, frozen=True):
    """`path` is the file of a SQLite store."""

    scheme: str
    path: str = ""

    @classmethod
    def parse(cls, url: str, origin: str = "url") -> Self:
        """`origin` says in an error where the URL came from."""
        known = f"known are {' and '.join(f'{name}:// ({how})' for name, how in _EXAMPLES.items())}"
        scheme, found, _ = url.partition("://")
        if not found:
            raise ConfigurationError(f"{origin}: {mask(url)!r} has no scheme; {known}")
        if scheme in _LATER:
            raise ConfigurationError(
                f"{origin}: {scheme}:// stores are not available in this version of Tidemill; {known}"
            )
        if scheme not in _EXAMPLES:
            raise ConfigurationError(f"{origin}: unknown scheme {mask(scheme)!r} in {mask(url)!r}; {known}")
        return cls(scheme, _sqlite_path(url, origin)) if scheme == "sqlite" else cls(scheme)

    def __str__(self) -> str:
        if not self.scheme:
            return "a store of the program's own"
        return f"{self.scheme}://" + (f"/{self.path}" if self.path else "")


OWN_STORE = StoreUrl("")
"""What stands for a URL when a program made its store itself."""


def mask(url: str) -> str:
    """The URL as it may be shown: without what stands before its last `@`, which may be a token as
    well as a password and may hold any character, and without its query and fragment. The path
    of a SQLite file may have an `@` in it; it begins with a slash."""
    shown = re.sub(r"(?s)^(?>((?:[\w.+-]+:)?//)?)(?:(?!/).*|[^:]*:.*)@", r"\1***@", url)
    return re.sub(r"(?s)([?#]).*", r"\1***", shown)


def _sqlite_path(url: str, origin: str) -> str:
    parts = urlsplit(url)
    if parts.netloc or len(parts.path) < len("/x"):
        raise ConfigurationError(
            f"{origin}: {mask(url)!r} names no file; three slashes start a relative path "
            "(sqlite:///tidemill.db), four an absolute one (sqlite:////var/lib/tidemill.db)"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(
            f"{origin}: {mask(url)!r} has options after '?' or '#'; a sqlite URL takes none"
        )
    return unquote(parts.path[1:])
