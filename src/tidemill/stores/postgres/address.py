"""Parses the postgresql:// URL of a store. The URL may name several hosts. Tidemill uses the options `schema`
and `connections`; all other options, such as `sslmode`, go to asyncpg."""

from __future__ import annotations

import os
import re
from typing import Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from tidemill.errors import ConfigurationError
from tidemill.stores.postgres.statements import DEFAULT_SCHEMA

DEFAULT_MAX_CONNECTIONS = 8
"""Most connections of one event loop. Verbs are whole batches, so a few are enough, and a server has about
a hundred for all its clients."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_HOST = re.compile(r"(\[[\w.:%]*\]|[\w.%-]*)(:\d{0,5})?")
_MAX_CONNECTIONS = 1000
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


class PostgresAddress(msgspec.Struct, frozen=True):
    """The address of a store.

    - `dsn`: the URL for asyncpg; it may contain a password and is never printed
    - `shown`: the text for messages, without the password
    - `connections`: the largest number of connections per event loop"""

    dsn: str
    shown: str
    schema: str = DEFAULT_SCHEMA
    connections: int = DEFAULT_MAX_CONNECTIONS

    @classmethod
    def parse(cls, url: str, schema: str | None = None) -> Self:
        parts = _split(url)
        shown = _shown(parts)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        named = options.pop("schema", DEFAULT_SCHEMA)
        connections = _connection_count(options.pop("connections", str(DEFAULT_MAX_CONNECTIONS)))
        _check_files(options)
        if "," in parts.netloc:
            # Of several hosts, use the host that accepts writes. After a failover this is another host.
            options.setdefault("target_session_attrs", "read-write")
        dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
        return cls(dsn, shown, _schema(schema or named), connections)

    def __str__(self) -> str:
        return self.shown


def _split(url: str) -> SplitResult:
    """Splits the URL into its parts. Raises ConfigurationError for a malformed URL, such as a password with
    an unescaped "/"."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or _is_malformed(parts):
        raise ConfigurationError(
            "url: it cannot be read as postgresql://user:password@host:port/database?schema=tidemill; write "
            "characters such as @, /, ?, # and [ in a user name, a password or an option as %40, %2F, %3F, "
            "%23 and %5B"
        )
    return parts


def _is_malformed(parts: SplitResult) -> bool:
    hosts, database = parts.netloc.rpartition("@")[2], parts.path.removeprefix("/")
    has_more_parts = "@" in f"{database}{parts.query}" or "/" in database or parts.fragment
    return bool(has_more_parts) or not all(_HOST.fullmatch(host) for host in hosts.split(","))


def _shown(parts: SplitResult) -> str:
    """Returns a text with host and database, without the password, for messages."""
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
    """Raises ConfigurationError if a TLS file named in the URL cannot be read. asyncpg's own error does not
    name the missing file."""
    for option in _FILES:
        if option in options and not os.access(options[option], os.R_OK):
            raise ConfigurationError(
                f"url: {option}={options[option]} is not there or may not be read; give a PEM file's path"
            )


def _connection_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_CONNECTIONS:
        raise ConfigurationError(
            f"url: connections={text!r} must be a whole number from 1 to {_MAX_CONNECTIONS}"
        )
    return int(text)
