"""A Redis URL, taken apart: which servers, how they are found, who asks, and under which prefix.

redis://user:password@host:6379/0?prefix=tidemill      one server; rediss:// speaks TLS
redis+sentinel://host:26379,host:26379/service/0       whoever the Sentinels say is the primary
redis+cluster://host:6379,host:6379                    the node of a Cluster that has the prefix's slot
redis+unix:///run/redis.sock?db=0                      one server on this machine
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

import msgspec

from tidemill.errors import ConfigurationError
from tidemill.tls import TlsFiles

DEFAULT_PREFIX = "tidemill"
DEADLINE = 5.0
"""A verb has returned or raised after this many seconds (I22)."""

_SCHEME = re.compile(r"redis(?P<tls>s)?(\+(?P<found>sentinel|cluster|unix))?")
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
_TIMEOUTS = (0.1, 300.0)


class Node(msgspec.Struct, frozen=True):
    """Where one server listens: a host and port, or the path of a socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Login(msgspec.Struct, frozen=True):
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return "Login(***)"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """`found` tells how the server is found among `nodes`: the only one, by Sentinels, or in a Cluster.
    `evicts`: a server that throws keys away is accepted."""

    scheme: str
    nodes: tuple[Node, ...]
    found: str = ""
    service: str = ""
    db: int = 0
    login: Login = Login()
    sentinel_login: Login = Login()
    tls: TlsFiles | None = None
    prefix: str = DEFAULT_PREFIX
    timeout: float = DEADLINE
    evicts: bool = False

    @property
    def root(self) -> str:
        """What every key begins with. The braces keep them in one slot of a Cluster: all that is atomic
        together."""
        return f"{{{self.prefix}}}:"

    def __str__(self) -> str:
        """Without secrets."""
        nodes = ",".join(map(str, self.nodes))
        path = "".join(f"/{part}" for part in (self.service, self.db or "") if part)
        options = "" if self.prefix == DEFAULT_PREFIX else f"?prefix={quote(self.prefix)}"
        return f"{self.scheme}://{nodes}{path}{options}"


def parse(url: str, prefix: str | None = None) -> Address:
    """`prefix` stands above the URL's."""
    scheme, _, rest = url.partition("://")
    kind = _SCHEME.fullmatch(scheme)
    if kind is None:
        _refuse(scheme, "it is not a redis URL; write redis://host:6379/0")
    found = kind["found"] or ""
    if found == "unix" and kind["tls"]:
        _refuse(scheme, "a Unix socket has no TLS; write redis+unix://")
    parts = _split(scheme, rest, found)
    options = _options(scheme, parts.query)
    nodes = (Node(path=unquote(parts.path)),) if found == "unix" else _nodes(scheme, parts.netloc, found)
    service, db = _place(scheme, found, parts.path, options)
    return Address(
        scheme=scheme,
        nodes=nodes,
        found=found,
        service=service,
        db=db,
        login=_login(parts.netloc),
        sentinel_login=Login(options.get("sentinel_user", ""), options.get("sentinel_password", "")),
        tls=_tls(scheme, options, secured=bool(kind["tls"])),
        prefix=_checked_prefix(scheme, prefix or options.get("prefix", DEFAULT_PREFIX)),
        timeout=_timeout(scheme, options.get("timeout")),
        evicts=_evicts(scheme, options.get("eviction")),
    )


def _split(scheme: str, rest: str, found: str) -> SplitResult:
    """An @ behind the host, or half a bracket, is of a password that was cut: no word of it may be shown."""
    try:
        parts = urlsplit(f"//{rest}")
    except ValueError:
        parts = None
    if parts is None or "@" in f"{'' if found == 'unix' else parts.path}{parts.query}{parts.fragment}":
        _refuse(
            scheme,
            f"it cannot be read as {scheme}://user:password@host:port/0; write characters such as @, /, ?, # "
            "and [ in a user name, a password or an option as %40, %2F, %3F, %23 and %5B",
        )
    return parts


def _nodes(scheme: str, netloc: str, found: str) -> tuple[Node, ...]:
    usual = 26379 if found == "sentinel" else 6379
    hosts = netloc.rpartition("@")[2]
    nodes = tuple(_node(scheme, host, usual) for host in hosts.split(",") if host)
    if not nodes:
        _refuse(scheme, f"it names no host; write {scheme}://host:{usual}")
    if len(nodes) > 1 and not found:
        _refuse(scheme, "it names several hosts; several are for redis+sentinel:// and redis+cluster://")
    return nodes


def _node(scheme: str, text: str, usual: int) -> Node:
    try:
        parts = urlsplit(f"//{text}")
        return Node(parts.hostname or "localhost", parts.port or usual)
    except ValueError:
        _refuse(scheme, "the port of a host is not a number from 1 to 65535; write host:6379")


def _login(netloc: str) -> Login:
    user, _, password = netloc.rpartition("@")[0].partition(":")
    return Login(unquote(user), unquote(password))


def _place(scheme: str, found: str, path: str, options: Mapping[str, str]) -> tuple[str, int]:
    """(service, number of the database)"""
    words = [unquote(word) for word in path.split("/") if word] if found != "unix" else []
    service = words.pop(0) if found == "sentinel" and words else ""
    if found == "sentinel" and not service:
        _refuse(scheme, f"it names no service; write {scheme}://host:26379/mymaster")
    text = words.pop(0) if words else options.get("db", "0")
    if words or not text.isascii() or not text.isdigit():
        _refuse(scheme, "the database must be a number, such as /0 at the end of the URL")
    if int(text) and found == "cluster":
        _refuse(scheme, "a Cluster has only database 0; tell stores apart with ?prefix=…")
    return service, int(text)


def _options(scheme: str, query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            _refuse(scheme, f"it has the unknown option {name!r}; known are {', '.join(_OPTIONS)}")
    return options


def _tls(scheme: str, options: Mapping[str, str], *, secured: bool) -> TlsFiles | None:
    given = [name for name in ("ca", "cert", "key", "verify") if name in options]
    if not secured:
        if given:
            _refuse(
                scheme, f"the option {given[0]!r} is for TLS; write {scheme.replace('redis', 'rediss', 1)}://"
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
        seconds = DEADLINE if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not _TIMEOUTS[0] <= seconds <= _TIMEOUTS[1]:
        _refuse(scheme, f"timeout must be seconds from {_TIMEOUTS[0]:g} to {_TIMEOUTS[1]:g}")
    return seconds


def _evicts(scheme: str, text: str | None) -> bool:
    if text not in (None, "allowed"):
        _refuse(scheme, "eviction must be allowed, or left out")
    return text is not None


def _refuse(scheme: str, problem: str) -> NoReturn:
    raise ConfigurationError(f"url ({scheme}://…): {problem}")
