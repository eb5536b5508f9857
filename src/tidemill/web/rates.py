"""How much one token may ask for: as the standard headers say it (draft-ietf-httpapi-ratelimit-headers)."""

from __future__ import annotations

import math
from http import HTTPStatus

from tidemill.clock import Clock
from tidemill.seam.refusals import Refused
from tidemill.web.buckets import Buckets

MINUTE = 60.0

Headers = dict[str, str]


class Rates:
    def __init__(self, clock: Clock, amount: int) -> None:
        self._buckets = Buckets(clock, amount, MINUTE)

    def take(self, token: str) -> Headers:
        wait = math.ceil(self._buckets.take(token))
        headers = self._headers(token)
        if wait:
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"this token may ask {self._buckets.amount} times a minute; ask again in {wait} seconds, or "
                "raise web.rate",
                headers={**headers, "retry-after": str(wait)},
            )
        return headers

    def _headers(self, token: str) -> Headers:
        left = int(self._buckets.left(token))
        full = math.ceil((self._buckets.amount - left) * self._buckets.per / self._buckets.amount)
        return {
            "ratelimit-policy": f'"token";q={self._buckets.amount};w={int(MINUTE)}',
            "ratelimit": f'"token";r={left};t={full}',
        }
