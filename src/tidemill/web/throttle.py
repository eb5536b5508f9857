"""Limits failed sign-ins."""

from __future__ import annotations

import math
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network

from tidemill.clock import Clock
from tidemill.seam.refusals import Refused
from tidemill.web.buckets import Buckets

TRIES, MINUTES = 5, 150.0
"""Wrong ones of one address, and after how many seconds as many again."""
OF_ALL = 100
_OWN_NETWORK = 64
"""Bits of an IPv6 address that a provider gives to one customer: the rest is theirs to choose."""


class Throttle:
    """Counts failures only, after the secret was checked: a right token or link is always accepted. A secret
    has 160 bits, so guessing is hopeless; the throttle protects the audit log from a flood of entries."""

    def __init__(self, clock: Clock) -> None:
        self._each, self._all = Buckets(clock, TRIES, MINUTES), Buckets(clock, OF_ALL, MINUTES)

    def failed(self, address: str | None) -> None:
        """Counts a failure. Raises Refused when there were too many."""
        who = network_of(address)
        wait = self._each.take(who)
        if not wait and (wait := self._all.take("")):
            self._each.give_back(who)
        if wait:
            seconds = math.ceil(wait)
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"too many sign-ins have failed; try again in {seconds} seconds",
                headers={"retry-after": str(seconds)},
            )


def network_of(address: str | None) -> str:
    """By what failures are counted: an IPv4 address, or the network of an IPv6 address."""
    try:
        known = ip_address(address or "")
    except ValueError:
        return address or ""
    if not isinstance(known, IPv6Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    bare = IPv6Address(int(known))  # without the zone
    return str(ip_network((bare, _OWN_NETWORK), strict=False))
