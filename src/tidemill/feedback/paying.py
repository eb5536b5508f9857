"""Whether a call that raised is known not to have been paid for.

Only two things prove it: the call was never sent, or the provider itself answered that it will not do it. A
timeout, a reset, a gateway's word or an exception of the caller's own code proves nothing.
"""

from __future__ import annotations

from tidemill.core.refusals import CLIENT_ERROR
from tidemill.feedback.classify import read
from tidemill.feedback.unpack import members, unpack


def known_unpaid(error: BaseException, *, now: float) -> bool:
    """Of an exception group every member must prove it: each may be a call of its own."""
    if not isinstance(error, Exception):
        return False  # the process or the attempt is ending in the middle of a call
    found = list(members(error))
    return bool(found) and all(_is_unpaid(one, now) for one in found)


def _is_unpaid(error: BaseException, now: float) -> bool:
    reading = read(error, now=now)
    if reading.sent != "answered":
        return reading.sent == "not sent"
    facts = unpack(error)
    # A client that tried by itself before may have been served, and cut off, by its earlier calls.
    refused = reading.refusal is not None or (facts.status or 0) >= CLIENT_ERROR
    return refused and not facts.retries
