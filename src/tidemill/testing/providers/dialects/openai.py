"""OpenAI: `x-ratelimit-*` headers with the time until full, `Retry-After`, and codes in the body."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tidemill.testing.providers.account import Standing
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
from tidemill.testing.providers.dialects.dialect import Dialect, Told, positive, texts_in
from tidemill.testing.providers.options import Reason

LEARN = "Visit https://platform.openai.com/account/rate-limits to learn more."
SHORT = {"requests": "R", "tokens": "T", "input_tokens": "T", "output_tokens": "T"}
FINISHED = {"stop": "stop", "length": "length", "blocked": "content_filter"}
WINDOWS = {60.0: ("min", "PM"), 86_400.0: ("day", "PD"), 3600.0: ("hour", "PH"), 1.0: ("sec", "PS")}


class OpenAI(Dialect):
    name: ClassVar[str] = "openai"
    speaks: ClassVar[frozenset[Reason]] = frozenset(
        {
            Reason.RATE,
            Reason.DAY,
            Reason.TOO_LARGE,
            Reason.ACCELERATION,
            Reason.OVERLOAD,
            Reason.NO_CREDIT,
            Reason.WRONG_KEY,
        }
    )
    chat = "/v1/chat/completions"
    embeddings = "/v1/embeddings"

    def read(self, request: Request, usual_output: int) -> Asked:
        if request.path not in (self.chat, self.embeddings):
            raise BadRequest(
                Answer(
                    404, {}, error(f"Invalid URL ({request.method} {request.path})", "invalid_request_error")
                )
            )
        model = request.body.get("model")
        wanted = "messages" if request.path == self.chat else "input"
        if not isinstance(model, str) or wanted not in request.body:
            missing = "model" if not isinstance(model, str) else wanted
            message = f"Missing required parameter: '{missing}'."
            code = "missing_required_parameter"
            raise BadRequest(Answer(400, {}, error(message, "invalid_request_error", code, missing)))
        texts = texts_in(request.body[wanted])
        body = request.body
        most = positive(body.get("max_completion_tokens")) or positive(body.get("max_tokens"))
        embed = request.path == self.embeddings
        return Asked(
            kind="embed" if embed else "chat",
            model=model,
            key=key_of(request),
            mark=mark_of(request),
            texts=texts,
            input_tokens=tokens_in(texts, request),
            output_tokens=0 if embed else tokens_out(request, usual_output, most),
            max_tokens=0 if embed else most,
            dimensions=positive(body.get("dimensions")),
        )

    def answer(self, asked: Asked, told: Told) -> Answer:
        return Answer(200, headers(told), completion(asked, told))

    def refuse(self, asked: Asked, told: Told) -> Answer:
        match told.verdict.reason:
            case Reason.NO_CREDIT:
                text = (
                    "You exceeded your current quota, please check your plan and billing details. For more "
                    "information on this error, read the docs: "
                    "https://platform.openai.com/docs/guides/error-codes/api-errors."
                )
                return Answer(429, {}, error(text, "insufficient_quota", "insufficient_quota"))
            case Reason.WRONG_KEY:
                text = "Incorrect API key provided. You can find your API key in your account settings."
                return Answer(401, {}, error(text, "invalid_request_error", "invalid_api_key"))
            case Reason.OVERLOAD:
                text = "The engine is currently overloaded, please try again later."
                return Answer(503, {}, error(text, "server_error"))
            case Reason.ACCELERATION:
                text = "Slow down: your request rate has risen too fast. Reduce it and raise it gradually."
                return Answer(503, {}, error(text, "server_error", "slow_down"))
            case _:
                return _rate(asked, told)


def _rate(asked: Asked, told: Told) -> Answer:
    worst = told.worst()
    if worst is None:  # a reason without a quota is said above
        raise ValueError(f"{told.verdict.reason}: this dialect has no words for it")
    unit = "requests" if worst.quota.unit == "requests" else "tokens"
    word, short = (
        ("day", "PD") if worst.quota.shape == "day" else WINDOWS.get(worst.quota.per, ("window", "PW"))
    )
    short = f"{SHORT[worst.quota.unit]}{short}"
    where = f"for {asked.model} in organization org-simulated on {unit} per {word} ({short})"
    if told.verdict.reason is Reason.TOO_LARGE:
        text = (
            f"Request too large {where}: Limit {worst.amount}, Requested {worst.needed}. The input or output "
            f"tokens must be reduced in order to run successfully. {LEARN}"
        )
        return Answer(429, headers(told), error(text, unit, "rate_limit_exceeded"))
    wait = told.wait() or 0.0
    used = worst.amount - worst.left
    text = (
        f"Rate limit reached {where}: Limit {worst.amount}, Used {used}, Requested {worst.needed}. "
        f"Please try again in {duration(wait)}. {LEARN}"
    )
    hints = {"retry-after": str(math.ceil(wait)), "retry-after-ms": str(math.ceil(wait * 1000))}
    return Answer(429, headers(told) | hints, error(text, unit, "rate_limit_exceeded"))


def headers(told: Told) -> dict[str, str]:
    """Of several quotas of a unit the first counts: with the day's first, `requests` is the daily one."""
    found: dict[str, Standing] = {}
    for standing in told.verdict.standings:
        unit = "requests" if standing.quota.unit == "requests" else "tokens"
        if standing.quota.shape != "concurrent":
            found.setdefault(unit, standing)
    made = {"x-request-id": f"req_simulated{told.number:08d}"}
    for unit, standing in found.items():
        made[f"x-ratelimit-limit-{unit}"] = str(standing.amount)
        made[f"x-ratelimit-remaining-{unit}"] = str(max(0, standing.left))
        made[f"x-ratelimit-reset-{unit}"] = duration(told.seconds(standing.full))
    return made


def duration(seconds: float) -> str:
    """As Go writes it: `12ms`, `8.64s`, `6m0s`, `1h2m3s`."""
    thousandths = math.ceil(round(seconds * 1000, 3))
    if thousandths < 1000:  # noqa: PLR2004 - a second
        return f"{thousandths}ms"
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    told = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{told}"
    return f"{minutes}m{told}" if minutes else told


def error(message: str, kind: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def completion(asked: Asked, told: Told) -> dict[str, Any]:
    if asked.kind == "embed":
        rows = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in told.content.vectors
        ]
        usage = {"prompt_tokens": asked.input_tokens, "total_tokens": asked.input_tokens}
        return {"object": "list", "data": rows, "model": asked.model, "usage": usage}
    message = {"role": "assistant", "content": told.content.text, "refusal": None}
    return {
        "id": f"chatcmpl-simulated{told.number:08d}",
        "object": "chat.completion",
        "created": int(told.wall),
        "model": asked.model,
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISHED[told.content.finish]}
        ],
        "usage": {
            "prompt_tokens": asked.input_tokens,
            "completion_tokens": asked.output_tokens,
            "total_tokens": asked.input_tokens + asked.output_tokens,
        },
    }
