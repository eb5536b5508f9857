"""Which database, and how to reach it: what a postgresql:// URL says.

What is ours is taken out of the URL (`schema`, `connections`). Everything else is libpq's and asyncpg's
business, TLS (`sslmode`, `sslrootcert` …) and several hosts included.
"""

from __future__ import annotations

import os
import re
from typing import Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from tidemill.errors import ConfigurationError
from tidemill.stores.postgres.statements import DEFAULT_SCHEMA

CONNECTIONS = 8
"""The most a process's event loop keeps: verbs are whole batches, so a few are plenty, and a server has
a hundred for everybody."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_HOST = re.compile(r"(\[[\w.:%]*\]|[\w.%-]*)(:\d{0,5})?")
_MOST_CONNECTIONS = 1000
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


class Address(msgspec.Struct, frozen=True):
    """`dsn` may hold a password and is never shown; `shown` is what people may see of it."""

    dsn: str
    shown: str
    schema: str = DEFAULT_SCHEMA
    connections: int = CONNECTIONS

    @classmethod
    def parse(cls, url: str, schema: str | None = None) -> Self:
        parts = _split(url)
        shown = _shown(parts)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        named = options.pop("schema", DEFAULT_SCHEMA)
        connections = _count(options.pop("connections", str(CONNECTIONS)))
        _check_files(options)
        if "," in parts.netloc:
            # Of several hosts the one that takes writes: after a failover that is another one.
            options.setdefault("target_session_attrs", "read-write")
        dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
        return cls(dsn, shown, _schema(schema or named), connections)

    def __str__(self) -> str:
        return self.shown


def _split(url: str) -> SplitResult:
    """A password with a character that ends a host would be shown as part of one: such a URL is refused, and
    would not work anyway."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or _is_strange(parts):
        raise ConfigurationError(
            "url: it cannot be read as postgresql://user:password@host:port/database?schema=tidemill; write "
            "characters such as @, /, ?, # and [ in a user name, a password or an option as %40, %2F, %3F, "
            "%23 and %5B"
        )
    return parts


def _is_strange(parts: SplitResult) -> bool:
    hosts, database = parts.netloc.rpartition("@")[2], parts.path.removeprefix("/")
    behind = "@" in f"{database}{parts.query}" or "/" in database or parts.fragment
    return bool(behind) or not all(_HOST.fullmatch(host) for host in hosts.split(","))


def _shown(parts: SplitResult) -> str:
    """Host and database."""
    host, database = parts.netloc.rpartition("@")[2], parts.path.removeprefix("/")
    return f"PostgreSQL at {host or 'the local socket'}" + (f"/{unquote(database)}" if database else "")


def _schema(name: str) -> str:
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_"):
        raise ConfigurationError(
            f"url: schema={name!r} cannot be used; take up to 50 small letters, digits and underscores that "
            "do not begin with a digit or with pg_"
        )
    return name


def _check_files(options: dict[str, str]) -> None:
    """What asyncpg says of a missing one does not name it."""
    for option in _FILES:
        if option in options and not os.access(options[option], os.R_OK):
            raise ConfigurationError(
                f"url: {option}={options[option]} is not there or may not be read; give a PEM file's path"
            )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_CONNECTIONS:
        raise ConfigurationError(
            f"url: connections={text!r} must be a whole number from 1 to {_MOST_CONNECTIONS}"
        )
    return int(text)
