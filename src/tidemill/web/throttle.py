"""How often somebody may try to sign in."""

from __future__ import annotations

import math
from http import HTTPStatus

from tidemill.clock import Clock
from tidemill.seam.refusals import Refused
from tidemill.web.buckets import Buckets

TRIES, MINUTES = 5, 150.0
"""Wrong ones of one address, and after how many seconds as many again."""
OF_ALL = 100


class Throttle:
    """A try is taken before it is known to be wrong, so that many at once are no way around; one that was
    right is given back. A secret has 160 bits: this keeps the audit log and the store from those who guess,
    not the guess from success."""

    def __init__(self, clock: Clock) -> None:
        self._each, self._all = Buckets(clock, TRIES, MINUTES), Buckets(clock, OF_ALL, MINUTES)

    def begin(self, address: str | None) -> None:
        wait = self._each.take(address or "")
        if not wait and (wait := self._all.take("")):
            self._each.give_back(address or "")
        if wait:
            seconds = math.ceil(wait)
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"too many sign-ins have failed; try again in {seconds} seconds",
                headers={"retry-after": str(seconds)},
            )

    def succeeded(self, address: str | None) -> None:
        self._each.give_back(address or "")
        self._all.give_back("")
