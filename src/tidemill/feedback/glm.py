"""The adapter for ZhipuAI GLM, which answers 429 with an error code in the body. The code decides the reason
of a refusal, not the text."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback.generic_http import parse_retry_after
from tidemill.feedback.provider_reply import ProviderReply, RefusalVerdict

RESET_TIME_ZONE = "Asia/Shanghai"
_CODES: dict[str, Reason | None] = {
    **dict.fromkeys(("1000", "1001", "1002", "1003", "1004"), Reason.FORBIDDEN),  # authentication failed
    **dict.fromkeys(("1110", "1111", "1112"), Reason.FORBIDDEN),  # account inactive, missing or locked
    "1113": Reason.SPENDING,  # payment overdue
    **dict.fromkeys(("1210", "1211", "1212", "1213", "1214"), None),  # the request is invalid
    "1261": Reason.TOO_LARGE,  # prompt too long
    "1301": None,  # content blocked: affects this job only
    "1302": Reason.CONCURRENCY,
    "1303": Reason.RATE,
    "1304": Reason.DAY_QUOTA,
    "1305": Reason.OVERLOAD,
    "1308": Reason.STATED,
    "1309": Reason.SPENDING,  # plan expired
    "1310": Reason.STATED,
    "1311": Reason.FORBIDDEN,  # model not in the plan
    "1312": Reason.OVERLOAD,
    "1313": Reason.FORBIDDEN,  # blocked for misuse
}
_RESET = re.compile(r"\b(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)\b")


def find_refusal(reply: ProviderReply, now: float) -> RefusalVerdict | None:
    code = reply.error.get("code")
    code = str(code) if isinstance(code, int) else code
    if not isinstance(code, str) or code not in _CODES:
        return None
    reason = _CODES[code]
    if reason is None:
        return RefusalVerdict(None)
    reset = _reset(reply.message) if reason is Reason.STATED else None
    after = parse_retry_after(reply, now)
    unsaid = reason is Reason.STATED and reset is None and after is None
    return RefusalVerdict(
        Refusal(
            reason=Reason.UNKNOWN if unsaid else reason,
            unit="requests" if code in ("1303", "1304") else None,
            retry_after=after,
            resets_at=reset,
            status=reply.status,
            then=Reason.DAY_QUOTA if unsaid else None,
            text=reply.message,
        )
    )


def _reset(message: str) -> float | None:
    """Returns the wall time of the reset that the message states, None if it states none. The message has no
    time zone; the provider's time zone is assumed."""
    match = _RESET.search(message)
    if match is None:
        return None
    try:
        return (
            datetime.fromisoformat(f"{match[1]}T{match[2]}")
            .replace(tzinfo=ZoneInfo(RESET_TIME_ZONE))
            .timestamp()
        )
    except ValueError:
        return None
