"""By which names the dashboard may be asked.

A page of somebody else can have its own name lead to this machine, and then ask from a browser here as if it
were ours (DNS rebinding). It cannot change the name it asks by: only our own are answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.types import Scope

from tidemill.settings import Settings

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_NETLOC = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[\w.-]+))(?::(?P<port>\d{1,5}))?")


class Netloc(NamedTuple):
    host: str
    port: int | None


def netloc_of(text: str) -> Netloc | None:
    found = _NETLOC.fullmatch(text.lower())
    if found is None:
        return None
    return Netloc(found["six"] or found["name"], int(found["port"]) if found["port"] else None)


class Hosts:
    """Our own addresses, and the names that somebody set: of a reverse proxy, or the one people know."""

    def __init__(self, settings: Settings) -> None:
        public = urlsplit(settings.value("web.public_url") or "").netloc
        self._named = frozenset(each.lower() for each in (*settings.value("web.hosts"), public) if each)
        self._own = _LOOPBACK | {settings.value("web.host").lower()}

    def names(self, netloc: Netloc) -> bool:
        """Whether somebody set it: a page there is ours though we were asked by another name, as a proxy
        does. On the usual port, unless another was set: what else that host serves is none of ours."""
        return f"{netloc.host}:{netloc.port}" in self._named or (
            netloc.port is None and netloc.host in self._named
        )

    def asked_by(self, scope: Scope) -> Netloc | None:
        """The one name that the request was sent to; None when it is none of ours. The port may be another:
        a tunnel's, or a container's."""
        sent = [value for name, value in scope["headers"] if name == b"host"]
        netloc = netloc_of(sent[0].decode("latin-1")) if len(sent) == 1 else None
        if netloc is None:
            return None
        own = {*self._own, (scope.get("server") or ("",))[0]}
        return netloc if netloc.host in own | self._named or self.names(netloc) else None


def same_port(one: Netloc, other: Netloc, schemes: Iterable[str]) -> bool:
    """A port that is not said is the scheme's."""
    usual = {"http": 80, "https": 443}
    return any((one.port or usual[scheme]) == (other.port or usual[scheme]) for scheme in schemes)
