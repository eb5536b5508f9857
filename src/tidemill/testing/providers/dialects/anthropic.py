"""Anthropic: `anthropic-ratelimit-*` headers with the moment of the reset, `retry-after` (not on a spend
cap), 529 when it is overloaded."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, ClassVar

from tidemill.testing.providers.asked import (
    Answer,
    Asked,
    BadRequest,
    Request,
    key_of,
    mark_of,
    tokens_in,
    tokens_out,
)
from tidemill.testing.providers.dialects.dialect import Dialect, Told, positive, texts_in, window_word
from tidemill.testing.providers.options import Reason

STOPPED = {"stop": "end_turn", "length": "max_tokens", "blocked": "refusal"}
UNITS = {
    "requests": "requests",
    "tokens": "tokens",
    "input_tokens": "input-tokens",
    "output_tokens": "output-tokens",
}
LIMITS = "For details, refer to: https://docs.claude.com/en/api/rate-limits."


class Anthropic(Dialect):
    name: ClassVar[str] = "anthropic"
    speaks: ClassVar[frozenset[Reason]] = frozenset(
        {
            Reason.RATE,
            Reason.TOO_LARGE,
            Reason.CONCURRENCY,
            Reason.ACCELERATION,
            Reason.OVERLOAD,
            Reason.SPEND_CAP,
            Reason.NO_CREDIT,
            Reason.WRONG_KEY,
        }
    )

    def read(self, request: Request, usual_output: int) -> Asked:
        if request.path != "/v1/messages":
            raise BadRequest(Answer(404, {}, _error("not_found_error", "Not found", 0)))
        for field in ("model", "max_tokens", "messages"):
            if field not in request.body:
                text = f"{field}: Field required"
                raise BadRequest(Answer(400, {}, _error("invalid_request_error", text, 0)))
        texts = texts_in(request.body.get("system")) + texts_in(request.body["messages"])
        most = positive(request.body["max_tokens"])
        return Asked(
            kind="chat",
            model=str(request.body["model"]),
            key=key_of(request),
            mark=mark_of(request),
            texts=texts,
            input_tokens=tokens_in(texts, request),
            output_tokens=tokens_out(request, usual_output, most),
            max_tokens=most,
        )

    def answer(self, asked: Asked, told: Told) -> Answer:
        body = {
            "id": f"msg_simulated{told.number:08d}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": [{"type": "text", "text": told.content.text}],
            "stop_reason": STOPPED[told.content.finish],
            "stop_sequence": None,
            "usage": {
                "input_tokens": asked.input_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": asked.output_tokens,
            },
        }
        return Answer(200, _headers(told), body)

    def refuse(self, asked: Asked, told: Told) -> Answer:  # noqa: ARG002 - the same to every question
        ours = _headers(told)
        match told.verdict.reason:
            case Reason.OVERLOAD:
                return Answer(529, _id(told), _error("overloaded_error", "Overloaded", told.number))
            case Reason.SPEND_CAP:
                text = "You have reached your organization's spend limit for this month."
                return Answer(429, _id(told), _error("rate_limit_error", text, told.number))
            case Reason.NO_CREDIT:
                text = "Your credit balance is too low to access the Anthropic API."
                return Answer(400, _id(told), _error("invalid_request_error", text, told.number))
            case Reason.WRONG_KEY:
                return Answer(
                    401, _id(told), _error("authentication_error", "invalid x-api-key", told.number)
                )
            case Reason.ACCELERATION:
                text = f"Your usage has increased too sharply; please raise it gradually. {LIMITS}"
                return Answer(429, ours | {"retry-after": "1"}, _error("rate_limit_error", text, told.number))
            case _:
                return _rate(told)


def _rate(told: Told) -> Answer:
    """Always with `retry-after`: without it a 429 would mean the spend cap."""
    worst = told.worst()
    if worst is None:  # a reason without a quota is said above
        raise ValueError(f"{told.verdict.reason}: this dialect has no words for it")
    if worst.quota.shape == "concurrent":
        text = "Number of concurrent connections has exceeded your rate limit. Please try again later."
    else:
        unit = worst.quota.unit.replace("_", " ")
        text = (
            f"This request would exceed the rate limit for your organization of {worst.amount:,} {unit} per "
            f"{window_word(worst)}. {LIMITS} You can see the response headers for current usage."
        )
    wait = told.wait()
    if wait is None:
        wait = told.seconds(worst.full)
    hint = {"retry-after": str(max(1, math.ceil(wait)))}
    return Answer(429, _headers(told) | hint, _error("rate_limit_error", text, told.number))


def _headers(told: Told) -> dict[str, str]:
    """`reset` is the moment the quota is full again, to the second; a unit's first quota is told."""
    made = _id(told)
    for standing in reversed(told.verdict.standings):
        if standing.quota.unit in UNITS:
            start = f"anthropic-ratelimit-{UNITS[standing.quota.unit]}"
            made[f"{start}-limit"] = str(standing.amount)
            made[f"{start}-remaining"] = str(max(0, standing.left))
            made[f"{start}-reset"] = _moment(told.until(standing.full))
    return made


def _moment(wall: float) -> str:
    return datetime.fromtimestamp(math.ceil(wall), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _id(told: Told) -> dict[str, str]:
    return {"request-id": f"req_simulated{told.number:08d}"}


def _error(kind: str, message: str, number: int) -> dict[str, Any]:
    inside = {"type": kind, "message": message}
    return {"type": "error", "error": inside, "request_id": f"req_simulated{number:08d}"}
