"""That a write was meant: a form brings a value along that only our own pages have.

A browser sends cookies with whatever any page makes it send. The value is made from the cookie, so nothing
has to be kept, and cannot be turned back into it. Who shows a token needs none: no page elsewhere can make a
browser send that.
"""

from __future__ import annotations

import hmac
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.requests import Request

from tidemill.seam.refusals import Refused
from tidemill.web.reading import FORM, kind_of, sent

FIELD, HEADER = "csrf", "x-csrf"


async def require(request: Request, wanted: str) -> None:
    given = request.headers.get(HEADER) or await _in_form(request)
    if not hmac.compare_digest(given.encode(), wanted.encode()):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            f"{FIELD}: is missing or of another session; load the page again",
            field=FIELD,
        )


async def _in_form(request: Request) -> str:
    if kind_of(request) != FORM:
        return ""
    pairs = parse_qs((await sent(request)).decode(errors="replace"))
    return pairs.get(FIELD, [""])[-1]
