"""ZhipuAI GLM: 429 outside, a number inside. The number counts, not the words."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from tidemill.core.refusals import Reason, Refusal
from tidemill.feedback.facts import Facts
from tidemill.feedback.ietf import retry_after
from tidemill.feedback.reading import Known

ZONE = "Asia/Shanghai"
_CODES: dict[str, Reason | None] = {
    **dict.fromkeys(("1000", "1001", "1002", "1003", "1004"), Reason.FORBIDDEN),  # who are you
    **dict.fromkeys(("1110", "1111", "1112"), Reason.FORBIDDEN),  # account inactive, missing or locked
    "1113": Reason.SPENDING,  # in arrears
    **dict.fromkeys(("1210", "1211", "1212", "1213", "1214"), None),  # the call itself is wrong
    "1261": Reason.TOO_LARGE,  # prompt too long
    "1301": None,  # content blocked: this job's own trouble
    "1302": Reason.CONCURRENCY,
    "1303": Reason.RATE,
    "1304": Reason.DAY_QUOTA,
    "1305": Reason.OVERLOAD,
    "1308": Reason.STATED,
    "1309": Reason.SPENDING,  # plan expired
    "1310": Reason.STATED,
    "1311": Reason.FORBIDDEN,  # model not in the plan
    "1312": Reason.OVERLOAD,
    "1313": Reason.FORBIDDEN,  # blocked for unfair use
}
_RESET = re.compile(r"\b(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)\b")


def refusal(facts: Facts, now: float) -> Known | None:
    code = facts.error.get("code")
    code = str(code) if isinstance(code, int) else code
    if not isinstance(code, str) or code not in _CODES:
        return None
    reason = _CODES[code]
    if reason is None:
        return Known(None)
    ends = _reset(facts.message) if reason is Reason.STATED else None
    after = retry_after(facts, now)
    unsaid = reason is Reason.STATED and ends is None and after is None
    return Known(
        Refusal(
            reason=Reason.UNKNOWN if unsaid else reason,
            unit="requests" if code in ("1303", "1304") else None,
            retry_after=after,
            resets_at=ends,
            status=facts.status,
            then=Reason.DAY_QUOTA if unsaid else None,
            text=facts.message,
        )
    )


def _reset(message: str) -> float | None:
    """Written without a zone, in the provider's own."""
    match = _RESET.search(message)
    if match is None:
        return None
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=ZoneInfo(ZONE)).timestamp()
    except ValueError:
        return None
