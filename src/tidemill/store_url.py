"""The URL of a store: parsing it, and showing it without its secrets."""

from __future__ import annotations

import re
from typing import Self
from urllib.parse import unquote, urlsplit

import msgspec

from tidemill.errors import ConfigurationError

DEFAULT_URL = "sqlite:///tidemill.db"

_KNOWN_SCHEMES = (
    "known are memory://, sqlite:// (sqlite:///tidemill.db or sqlite:////var/lib/tidemill.db), "
    "redis:// (also rediss://, redis+sentinel://, redis+cluster:// and redis+unix://) and postgresql://"
)
_FILE = re.compile(r"sqlite:///[^?#]*(?:\?mode=0?[0-7]{3}$)?")
_MODE = re.compile(r"0?([0-7]{3})")
DEFAULT_FILE_MODE = 0o600
"""For a SQLite file: its owner reads and writes it."""
_SCHEME = re.compile(r"(?i)[a-z][a-z0-9+.-]{0,19}://")
_SERVERS = re.compile(r"rediss?(\+(sentinel|cluster|unix))?|postgres(ql)?")
_UNSUPPORTED_SCHEMES = ("amqp", "amqps")
_HOST = r"(?:[\w.-]+|\[[0-9a-fA-F:]+\])(?::\d+)?"
_SERVER = re.compile(
    rf"(?P<scheme>[a-z+]+://)(?:[^@/?#]*@)?(?P<place>(?:{_HOST}(?:,{_HOST})*)?(?:/[\w.-]*)*)(?:\?[^@#]*)?"
)
"""Matches the parts of a server URL that may be shown, without user, password and options."""


class StoreUrl(msgspec.Struct, frozen=True):
    """A parsed store URL. `str()` of this object shows no secrets.

    - `path`: the file of a SQLite store
    - `mode`: the permissions for a new file
    - `server`: the whole URL of a database server, including its secrets"""

    scheme: str
    path: str = ""
    server: str = ""
    mode: int = DEFAULT_FILE_MODE

    @classmethod
    def parse(cls, url: str, origin: str = "url") -> Self:
        """Returns the parsed URL. Raises `ConfigurationError` if the URL is invalid. `origin` says in the
        error message where the URL came from."""
        scheme, found, _ = url.partition("://")
        if not found:
            raise ConfigurationError(f"{origin}: it has no scheme; {_KNOWN_SCHEMES}")
        if scheme in _UNSUPPORTED_SCHEMES:
            raise ConfigurationError(
                f"{origin}: {scheme}:// stores are not available in this version of Tidemill; "
                f"{_KNOWN_SCHEMES}"
            )
        if _SERVERS.fullmatch(scheme):
            return cls(scheme, server=url)
        if scheme not in ("memory", "sqlite"):
            raise ConfigurationError(f"{origin}: unknown scheme in {mask_url(url)!r}; {_KNOWN_SCHEMES}")
        if scheme == "memory":
            return cls(scheme)
        path, mode = _sqlite_file(url, origin)
        return cls(scheme, path, mode=mode)

    def __str__(self) -> str:
        if not self.scheme:
            return "a store of the program's own"
        if self.server:
            server = _SERVER.fullmatch(self.server)
            return f"{server['scheme']}{server['place']}" if server else mask_url(self.server)
        return f"{self.scheme}://" + (f"/{self.path}" if self.path else "")

    def __repr__(self) -> str:
        return f"StoreUrl({str(self)!r})"


CUSTOM_STORE = StoreUrl("")
"""Stands for the URL when a program created its store itself."""


def mask_url(url: str) -> str:
    """Returns the URL in a form that may be shown. `memory://` and the path of a SQLite file are shown. Of
    any other URL only the scheme is shown. A text without a scheme is hidden completely."""
    if url == "memory://":
        return url
    if file := _FILE.match(url):
        return url if file.end() == len(url) else f"{url[: file.end() + 1]}***"
    scheme = _SCHEME.match(url)
    return f"{scheme[0]}***" if scheme else "***"


def holds_secrets(url: str) -> bool:
    """True if the URL has a part that may be secret: a user, a password or options."""
    return mask_url(url) != url and re.search("[@?#=]", url) is not None


def _sqlite_file(url: str, origin: str) -> tuple[str, int]:
    parts = urlsplit(url) if url.startswith("sqlite:///") else None
    if parts is None or len(parts.path) < len("/x"):
        raise ConfigurationError(
            f"{origin}: {mask_url(url)!r} names no file; three slashes start a relative path "
            "(sqlite:///tidemill.db), four an absolute one (sqlite:////var/lib/tidemill.db)"
        )
    path = unquote(parts.path[1:])
    if not re.search("[?#]", url):
        return path, DEFAULT_FILE_MODE
    name, _, value = parts.query.partition("=")
    if parts.fragment or name != "mode" or "&" in value:
        raise ConfigurationError(
            f"{origin}: {mask_url(url)!r} has options after '?' or '#'; "
            "the only option of a sqlite URL is mode, such as ?mode=0660"
        )
    return path, _file_mode(value, origin)


def _file_mode(text: str, origin: str) -> int:
    digits = _MODE.fullmatch(text)
    mode = int(digits[1], 8) if digits else 0
    if DEFAULT_FILE_MODE & ~mode or mode & 0o111:
        shown = text if re.fullmatch("[0-9]{0,5}", text) else "***"
        raise ConfigurationError(
            f"{origin}: mode: must be three octal digits that let the owner read and write and no user "
            f"execute the file, such as 0600 or 0660; is {shown!r}"
        )
    return mode
