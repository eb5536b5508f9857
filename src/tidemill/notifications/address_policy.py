"""Decides which addresses a webhook may call. Applications that fetch URLs of users share the rule.

Users choose a webhook's address, and workers call it from inside the operator's network. The address must not
lead to internal services (SSRF).

The worker resolves a host name once and checks all its IP addresses. It connects only to an address that it
checked, so a later DNS change has no effect.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tidemill.errors import ConfigurationError, GiveUp

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_URL_CHARACTERS = 2000
_DEFAULT_PORTS = {"http": 80, "https": 443}
_IPV4_IN_IPV6_NETWORKS = tuple(
    ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)
"""IPv6 addresses that embed IPv4 addresses; some networks forward them to IPv4."""
_SPECIAL_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "fec0::/10", "3fff::/20")
)
"""Networks that `ipaddress` calls global and that are not public: protocol assignments, 6to4 relays,
site-local and documentation addresses, and the address at which Azure serves its own virtual machines."""
_HOST_ENTRY = re.compile(r"([^\s/:\[\]@]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?")
"""A host with or without a port, as the setting `webhooks.allow` names it."""


class AddressNotAllowed(GiveUp):
    """Raised if a webhook may not call an address. The job is not retried, because a retry cannot change
    this."""


class UrlTarget(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str


class SocketAddress(NamedTuple):
    """An address to connect to, in the form that `socket.connect` takes."""

    family: int
    address: Any


class AllowedAddresses(msgspec.Struct, frozen=True):
    """Decides which IP addresses may be called: all public ones, and the given exceptions.

    `hosts` has host names, and hosts with a port such as localhost:8080. `networks` has IP networks such as
    10.0.0.0/8."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str], *, setting: str = "webhooks.allow") -> AllowedAddresses:
        """Returns the exceptions in a setting. Raises ConfigurationError, which names the setting, if an
        entry is neither a host, a host with a port nor a network."""
        hosts, networks = set(), []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError:
                if _HOST_ENTRY.fullmatch(entry) is None:
                    raise ConfigurationError(
                        f"{setting}: must be hosts, host:port or networks such as 10.0.0.0/8, has {entry!r}"
                    ) from None
                hosts.add(entry.lower().replace("[", "").replace("]", ""))
        return cls(frozenset(hosts), tuple(networks))

    def allows(self, host: str, port: int, address: Address) -> bool:
        """Returns True if a call to `host` may connect to this address and port. An IPv4 address in IPv6 form
        counts as the IPv4 address."""
        address = unmap_ipv4(address)
        names = (host, f"{host}:{port}", f"{address}:{port}")
        return (
            is_public(address)
            or any(name in self.hosts for name in names)
            or any(address in network for network in self.networks)
        )


def is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and any(
        address in network for network in _IPV4_IN_IPV6_NETWORKS
    ):
        return False
    special = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    inside = special or any(address in network for network in _SPECIAL_NETWORKS)
    return address.is_global and not inside


def parse_url(url: str) -> UrlTarget:
    """Returns the parts of a webhook's URL. Raises ConfigurationError, whose message names the problem, if
    the URL cannot be used."""
    if len(url) > MAX_URL_CHARACTERS:
        raise ConfigurationError(f"url: must have at most {MAX_URL_CHARACTERS} characters, has {len(url)}")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ConfigurationError("url: must be plain ASCII without spaces or backslashes; escape them")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # the encoding that the DNS lookup uses
    except ValueError as error:
        raise ConfigurationError(f"url: is no address: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise ConfigurationError("url: must begin with https:// or http:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("url: must not hold a user name or password; the signature says who we are")
    if parts.fragment or port == 0:
        raise ConfigurationError("url: must have no fragment (#…), and a port above 0 if any")
    query = f"?{parts.query}" if parts.query else ""
    return UrlTarget(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], (parts.path or "/") + query)


def check_url_allowed(url: str, allowed: AllowedAddresses) -> None:
    """Raises ConfigurationError if the URL's host is a numeric address, in any spelling, that may not be
    called. A host name is checked with each call instead, because its addresses may change."""
    try:
        resolve_addresses(parse_url(url), allowed, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return
    except AddressNotAllowed as error:
        raise ConfigurationError(f"url: {error}") from None


def resolve_addresses(target: UrlTarget, allowed: AllowedAddresses, *, flags: int = 0) -> list[SocketAddress]:
    """Returns the IP addresses of the host. Raises AddressNotAllowed if one of them may not be called."""
    addresses = []
    found = socket.getaddrinfo(
        target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags
    )
    for family, _, _, _, address in found:
        known = unmap_ipv4(ipaddress.ip_address(str(address[0]).partition("%")[0]))
        if not allowed.allows(target.host, target.port, known):
            raise AddressNotAllowed(
                f"{target.host} leads to {known}, which is not public; to allow it add the host or "
                "its network to the setting webhooks.allow"
            )
        addresses.append(SocketAddress(family, address))
    return addresses


def unmap_ipv4(address: Address) -> Address:
    """Returns the IPv4 address of an IPv4-mapped IPv6 address, and any other address as it is."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
