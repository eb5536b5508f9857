"""Whom we call, and whom we must not.

A webhook's address is chosen by a person, or by a program on somebody's behalf, and called from inside our
network: it must not lead to what only those inside can reach. A name is resolved once, every address it has
is checked, and the connection is made to exactly that address; so neither how an address is written nor what
the name means a moment later matters.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tidemill.errors import ConfigurationError, GiveUp

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LONGEST_URL = 2000
_PORTS = {"http": 80, "https": 443}
_CARRIERS = tuple(
    ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)
"""IPv6 addresses that stand for IPv4 ones, which some networks pass on to them."""
_INSIDE = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "fec0::/10", "3fff::/20")
)
"""What the library takes for public and is not: of protocols and documents, of sites as they once were, and
the address at which one cloud answers its own machines."""


class AddressRefused(GiveUp):
    """The address is none that may be called; trying again does not change it."""


class Target(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str


class Place(NamedTuple):
    """An address to connect to, as the system wants it."""

    family: int
    address: Any


class Allowed(msgspec.Struct, frozen=True):
    """What may be called though it is not public: `hosts` by name, and `networks`."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> Allowed:
        hosts, networks = set(), []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError:
                if not entry or "/" in entry or ":" in entry:
                    raise ConfigurationError(
                        f"webhooks.allow: must be hosts or networks such as 10.0.0.0/8, has {entry!r}"
                    ) from None
                hosts.add(entry.lower())
        return cls(frozenset(hosts), tuple(networks))

    def takes(self, host: str, address: Address) -> bool:
        return (
            is_public(address) or host in self.hosts or any(address in network for network in self.networks)
        )


def is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and any(address in network for network in _CARRIERS):
        return False
    special = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    inside = special or any(address in network for network in _INSIDE)
    return address.is_global and not inside


def target_of(url: str) -> Target:
    """Refuses, naming the problem, what cannot be the address of a webhook."""
    if len(url) > LONGEST_URL:
        raise ConfigurationError(f"url: must have at most {LONGEST_URL} characters, has {len(url)}")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ConfigurationError("url: must be plain ASCII without spaces or backslashes; escape them")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as it is looked up
    except ValueError as error:
        raise ConfigurationError(f"url: is no address: {error}") from None
    if parts.scheme not in _PORTS or not host:
        raise ConfigurationError("url: must begin with https:// or http:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("url: must not hold a user name or password; the signature says who we are")
    if parts.fragment or port == 0:
        raise ConfigurationError("url: must have no fragment (#…), and a port above 0 if any")
    query = f"?{parts.query}" if parts.query else ""
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], (parts.path or "/") + query)


def require_callable(url: str, allowed: Allowed) -> None:
    """Refuses a host that is itself an address which must not be called, however it is written. Where a name
    leads is looked at when it is called: it may lead elsewhere by then."""
    try:
        resolve(target_of(url), allowed, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return
    except AddressRefused as error:
        raise ConfigurationError(f"url: {error}") from None


def resolve(target: Target, allowed: Allowed, *, flags: int = 0) -> list[Place]:
    """Where to connect to, in order. One address that must not be called is enough to call none."""
    places = []
    found = socket.getaddrinfo(
        target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags
    )
    for family, _, _, _, address in found:
        known = _plain(ipaddress.ip_address(str(address[0]).partition("%")[0]))
        if not allowed.takes(target.host, known):
            raise AddressRefused(
                f"{target.host} leads to {known}, which is not public; to allow it add the host or "
                "its network to the setting webhooks.allow"
            )
        places.append(Place(family, address))
    return places


def _plain(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
