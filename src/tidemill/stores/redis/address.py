"""Parses a Redis URL into servers, discovery, login and prefix.

redis://user:password@host:6379/0?prefix=tidemill      one server; rediss:// uses TLS
redis+sentinel://host:26379,host:26379/service/0       the primary that the Sentinels name
redis+cluster://host:6379,host:6379                    the Cluster node that owns the prefix's hash slot
redis+unix:///run/redis.sock?db=0                      one server on this machine"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

import msgspec

from tidemill.errors import ConfigurationError
from tidemill.tls import TlsFiles

DEFAULT_PREFIX = "tidemill"
DEFAULT_TIMEOUT_SECONDS = 5.0
"""Every verb returns or raises within this many seconds (I22)."""

_SCHEME = re.compile(r"redis(?P<tls>s)?(\+(?P<discovery>sentinel|cluster|unix))?")
_OPTIONS = (
    "prefix",
    "timeout",
    "db",
    "eviction",
    "ca",
    "cert",
    "key",
    "verify",
    "sentinel_user",
    "sentinel_password",
)
_PREFIX = re.compile(r"[^\s{}*?\[\]\\]{1,100}")
_TIMEOUT_RANGE_SECONDS = (0.1, 300.0)


class RedisNode(msgspec.Struct, frozen=True):
    """The address of one server: a host and port, or the path of a socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RedisLogin(msgspec.Struct, frozen=True):
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return "Login(***)"


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed Redis URL.

    - `discovery`: how to find the server
    - `nodes`: the Sentinels or Cluster nodes to ask; without discovery, only the server
    - `service`: the name of the primary that the Sentinels watch
    - `evicts`: True accepts a server that deletes keys when its memory is full
    - `timeout`: in seconds"""

    scheme: str
    nodes: tuple[RedisNode, ...]
    discovery: str = ""
    service: str = ""
    db: int = 0
    login: RedisLogin = RedisLogin()
    sentinel_login: RedisLogin = RedisLogin()
    tls: TlsFiles | None = None
    prefix: str = DEFAULT_PREFIX
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    evicts: bool = False

    @property
    def root(self) -> str:
        """The text at the beginning of every Redis key. Its braces keep all keys in one hash slot of a
        Cluster."""
        return f"{{{self.prefix}}}:"

    def __str__(self) -> str:
        """Returns the URL without user, password and other secrets."""
        nodes = ",".join(map(str, self.nodes))
        path = "".join(f"/{part}" for part in (self.service, self.db or "") if part)
        options = "" if self.prefix == DEFAULT_PREFIX else f"?prefix={quote(self.prefix)}"
        return f"{self.scheme}://{nodes}{path}{options}"


def parse_url(url: str, prefix: str | None = None) -> RedisAddress:
    """Returns the parsed URL. If `prefix` is given, it replaces the prefix in the URL. Raises
    ConfigurationError for an invalid URL."""
    scheme, _, rest = url.partition("://")
    kind = _SCHEME.fullmatch(scheme)
    if kind is None:
        _refuse(scheme, "it is not a redis URL; write redis://host:6379/0")
    discovery = kind["discovery"] or ""
    if discovery == "unix" and kind["tls"]:
        _refuse(scheme, "a Unix socket has no TLS; write redis+unix://")
    parts = _split(scheme, rest, discovery)
    options = _options(scheme, parts.query)
    nodes = (
        (RedisNode(path=unquote(parts.path)),)
        if discovery == "unix"
        else _nodes(scheme, parts.netloc, discovery)
    )
    service, db = _service_and_database(scheme, discovery, parts.path, options)
    return RedisAddress(
        scheme=scheme,
        nodes=nodes,
        discovery=discovery,
        service=service,
        db=db,
        login=_login(parts.netloc),
        sentinel_login=RedisLogin(options.get("sentinel_user", ""), options.get("sentinel_password", "")),
        tls=_tls(scheme, options, secured=bool(kind["tls"])),
        prefix=_checked_prefix(scheme, prefix or options.get("prefix", DEFAULT_PREFIX)),
        timeout=_timeout(scheme, options.get("timeout")),
        evicts=_evicts(scheme, options.get("eviction")),
    )


def _split(scheme: str, rest: str, discovery: str) -> SplitResult:
    """Splits a URL into login, host, path and query. Raises ConfigurationError for a malformed URL; the
    message does not show the URL, because of the password."""
    try:
        parts = urlsplit(f"//{rest}")
    except ValueError:
        parts = None
    if parts is None or "@" in f"{'' if discovery == 'unix' else parts.path}{parts.query}{parts.fragment}":
        _refuse(
            scheme,
            f"it cannot be read as {scheme}://user:password@host:port/0; write characters such as @, /, ?, # "
            "and [ in a user name, a password or an option as %40, %2F, %3F, %23 and %5B",
        )
    return parts


def _nodes(scheme: str, netloc: str, discovery: str) -> tuple[RedisNode, ...]:
    usual = 26379 if discovery == "sentinel" else 6379
    hosts = netloc.rpartition("@")[2]
    nodes = tuple(_node(scheme, host, usual) for host in hosts.split(",") if host)
    if not nodes:
        _refuse(scheme, f"it names no host; write {scheme}://host:{usual}")
    if len(nodes) > 1 and not discovery:
        _refuse(scheme, "it names several hosts; several are for redis+sentinel:// and redis+cluster://")
    return nodes


def _node(scheme: str, text: str, usual: int) -> RedisNode:
    try:
        parts = urlsplit(f"//{text}")
        return RedisNode(parts.hostname or "localhost", parts.port or usual)
    except ValueError:
        _refuse(scheme, "the port of a host is not a number from 1 to 65535; write host:6379")


def _login(netloc: str) -> RedisLogin:
    user, _, password = netloc.rpartition("@")[0].partition(":")
    return RedisLogin(unquote(user), unquote(password))


def _service_and_database(
    scheme: str, discovery: str, path: str, options: Mapping[str, str]
) -> tuple[str, int]:
    """Returns the name of the Sentinel service (empty without Sentinel) and the number of the database."""
    words = [unquote(word) for word in path.split("/") if word] if discovery != "unix" else []
    service = words.pop(0) if discovery == "sentinel" and words else ""
    if discovery == "sentinel" and not service:
        _refuse(scheme, f"it names no service; write {scheme}://host:26379/mymaster")
    text = words.pop(0) if words else options.get("db", "0")
    if words or not text.isascii() or not text.isdigit():
        _refuse(scheme, "the database must be a number, such as /0 at the end of the URL")
    if int(text) and discovery == "cluster":
        _refuse(scheme, "a Cluster has only database 0; tell stores apart with ?prefix=…")
    return service, int(text)


def _options(scheme: str, query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            _refuse(scheme, f"it has the unknown option {name!r}; known are {', '.join(_OPTIONS)}")
    return options


def _tls(scheme: str, options: Mapping[str, str], *, secured: bool) -> TlsFiles | None:
    tls_options = [name for name in ("ca", "cert", "key", "verify") if name in options]
    if not secured:
        if tls_options:
            _refuse(
                scheme,
                f"the option {tls_options[0]!r} is for TLS; write {scheme.replace('redis', 'rediss', 1)}://",
            )
        return None
    verify = options.get("verify", "yes")
    if verify not in ("yes", "no"):
        _refuse(scheme, "verify must be yes or no")
    if options.get("key") and not options.get("cert"):
        _refuse(scheme, "key is given without cert; give the client's certificate too")
    return TlsFiles(options.get("ca", ""), options.get("cert", ""), options.get("key", ""), verify == "yes")


def _checked_prefix(scheme: str, prefix: str) -> str:
    if _PREFIX.fullmatch(prefix) is None:
        _refuse(scheme, "prefix must be 1 to 100 characters without spaces and without any of {}*?[]\\")
    return prefix


def _timeout(scheme: str, text: str | None) -> float:
    try:
        seconds = DEFAULT_TIMEOUT_SECONDS if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not _TIMEOUT_RANGE_SECONDS[0] <= seconds <= _TIMEOUT_RANGE_SECONDS[1]:
        _refuse(
            scheme,
            f"timeout must be seconds from {_TIMEOUT_RANGE_SECONDS[0]:g} to {_TIMEOUT_RANGE_SECONDS[1]:g}",
        )
    return seconds


def _evicts(scheme: str, text: str | None) -> bool:
    if text not in (None, "allowed"):
        _refuse(scheme, "eviction must be allowed, or left out")
    return text is not None


def _refuse(scheme: str, problem: str) -> NoReturn:
    raise ConfigurationError(f"url ({scheme}://…): {problem}")
