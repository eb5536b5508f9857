"""Checks URLs of feeds: only http(s), no user information, and no address inside the operator's network.

Users choose the URLs, and workers fetch them from inside the operator's network. `tidemill.AllowedAddresses`
has the rule about addresses, which webhooks share."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

import idna

from tidemill import AllowedAddresses

MAX_URL_CHARACTERS = 2000
_DEFAULT_PORTS = {"http": 80, "https": 443}
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")
_HOST_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")
_NUMBER_LABEL = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
_UNESCAPED = "%/:=&?~+!$,;'@()*[]|"
"""Characters of a path or query that stay as they are; `%` begins an escape that the URL has already."""


class InvalidFeedUrl(ValueError):
    """Raised for a URL that cannot be fetched. The message says what the URL must be."""


class PrivateAddress(Exception):
    """Raised if a URL leads to an address that is neither public nor allowed. The message names both."""


class FeedAddress(NamedTuple):
    """A checked URL in its normal form, and its parts. `host` is lower-case and in IDNA form."""

    url: str
    host: str
    port: int

    @property
    def is_ip(self) -> bool:
        """True if the host is an IP address and not a name."""
        return ":" in self.host or _NUMBER_LABEL.fullmatch(self.host.rpartition(".")[2]) is not None

    @property
    def host_and_port(self) -> str:
        return f"{_in_brackets(self.host)}:{self.port}"


def parse_feed_url(url: str) -> FeedAddress:
    """Returns the normal form of an http(s) URL. Raises InvalidFeedUrl if the URL cannot be fetched.

    The fragment is dropped, because servers never see it. Unusual spellings of an IPv4 address, such as
    2130706433 or 0x7f.1, become the usual one."""
    url = url.strip()
    if len(url) > MAX_URL_CHARACTERS:
        raise InvalidFeedUrl(f"url: must have at most {MAX_URL_CHARACTERS} characters, has {len(url)}")
    if _FORBIDDEN.search(url):
        raise InvalidFeedUrl("url: must have no control characters or backslashes; escape them with %")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidFeedUrl(f"url: must be an address such as https://example.com/feed; {error}") from None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise InvalidFeedUrl("url: must begin with https:// or http:// and name a host")
    if "@" in parts.netloc:
        raise InvalidFeedUrl("url: must not have a user name or password; remove the part before the @")
    if port == 0:
        raise InvalidFeedUrl("url: must have a port from 1 to 65535, is 0")
    host = _normal_host(parts.hostname)
    default = _DEFAULT_PORTS[parts.scheme]
    return FeedAddress(_join(parts, host, port or default, default), host, port or default)


def _join(parts: SplitResult, host: str, port: int, default: int) -> str:
    netloc = _in_brackets(host) if port == default else f"{_in_brackets(host)}:{port}"
    query = f"?{quote(parts.query, safe=_UNESCAPED)}" if parts.query else ""
    return f"{parts.scheme}://{netloc}{quote(parts.path, safe=_UNESCAPED) or '/'}{query}"


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _normal_host(host: str) -> str:
    """Returns the host in the one spelling that is checked, resolved and connected to."""
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host.replace("%", "/")))  # refuses a zone (%eth0)
        except ValueError:
            raise InvalidFeedUrl(f"url: must have an IPv6 address in the brackets, has {host}") from None
    try:
        name = host if host.isascii() else idna.encode(host, uts46=True).decode("ascii")
    except UnicodeError as error:
        raise InvalidFeedUrl(f"url: must name a host, has {host!r}; {error}") from None
    name = name.lower().removesuffix(".")
    if _NUMBER_LABEL.fullmatch(name.rpartition(".")[2]):
        try:
            return socket.inet_ntoa(socket.inet_aton(name))
        except OSError:
            raise InvalidFeedUrl(f"url: must have an IPv4 address such as 192.0.2.1, has {name}") from None
    if _HOST_NAME.fullmatch(name) is None:
        raise InvalidFeedUrl(f"url: must name a host, has {host!r}")
    return name


def check_address(target: FeedAddress, ip: str, allowed: AllowedAddresses) -> None:
    """Raises PrivateAddress if a fetch of `target` may not connect to this IP address."""
    address = ipaddress.ip_address(ip.partition("%")[0])
    if not allowed.allows(target.host, target.port, address):
        raise PrivateAddress(
            f"{target.host} leads to {address}, which is not public; to fetch it, add {target.host_and_port} "
            "or its network to the allowed addresses"
        )


def check_literal(target: FeedAddress, allowed: AllowedAddresses) -> None:
    """Raises PrivateAddress if the host of `target` is an IP address that may not be fetched. Names are
    checked when they are resolved, because their addresses may change."""
    if target.is_ip:
        check_address(target, target.host, allowed)
