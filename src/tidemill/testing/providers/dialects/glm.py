"""ZhipuAI GLM: no headers; HTTP 429 outside for nearly everything, and the meaning in a code inside."""

# ruff: noqa: RUF001 - Chinese has commas of its own

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar

from tidemill.testing.providers.asked import Answer, Asked, Request
from tidemill.testing.providers.dialects.dialect import Dialect, Told
from tidemill.testing.providers.dialects.openai import OpenAI, completion
from tidemill.testing.providers.options import Reason

BEIJING = timedelta(hours=8)
WEEK = 7 * 86_400.0

SAID: dict[Reason, tuple[int, str, str]] = {
    Reason.CONCURRENCY: (429, "1302", "您当前使用该API的并发数过高，请降低并发，或联系客服增加限额"),
    Reason.RATE: (429, "1303", "您当前使用该API的频率过高，请降低频率，或联系客服增加限额"),
    Reason.ACCELERATION: (429, "1302", "您的账户已达到速率限制，请您控制请求频率"),
    Reason.DAY: (429, "1304", "该API已达今日调用次数限额，如有更多需求，请联系客服购买"),
    Reason.OVERLOAD: (429, "1305", "该模型当前访问量过大，请您稍后再试"),
    Reason.NO_CREDIT: (429, "1113", "您的账户已欠费，请充值后重试"),
    Reason.PLAN_EXPIRED: (429, "1309", "您的套餐已到期，暂无法使用，续订后即可恢复"),
    Reason.FAIR_USE: (429, "1313", "您的账户当前使用模式不符合公平使用策略，请求频率已受到限制"),
    Reason.CONTENT: (429, "1301", "系统检测到输入或生成内容可能包含不安全或敏感内容"),
    Reason.WRONG_KEY: (401, "1000", "身份验证失败"),
    Reason.TOO_LARGE: (400, "1261", "Prompt 超长"),
}


class GLM(Dialect):
    """overload: 1305, or 1312, which names other models."""

    name: ClassVar[str] = "glm"
    speaks: ClassVar[frozenset[Reason]] = frozenset(SAID) | {Reason.PERIOD, Reason.NOT_ON_TIER}

    def __init__(self, *, overload: str = "1305") -> None:
        self._overload = overload
        self._reader = _Reader()

    def read(self, request: Request, usual_output: int) -> Asked:
        return self._reader.read(request, usual_output)

    def answer(self, asked: Asked, told: Told) -> Answer:
        body = completion(asked, told)
        if asked.kind == "chat":
            body |= {"request_id": asked.mark or f"simulated{told.number:08d}"}
        return Answer(200, {}, body)

    def refuse(self, asked: Asked, told: Told) -> Answer:
        reason = told.verdict.reason
        if reason is Reason.NOT_ON_TIER:
            return _refusal(429, "1311", f"当前订阅套餐暂未开放{asked.model}权限")
        if reason is Reason.PERIOD:
            return _used_up(told)
        if reason not in SAID:
            raise ValueError(f"{reason}: this dialect has no words for it")
        status, code, text = SAID[reason]
        return _refusal(status, self._overload if reason is Reason.OVERLOAD else code, text)


class _Reader(OpenAI):
    """Requests look like OpenAI's."""

    chat = "/api/paas/v4/chat/completions"
    embeddings = "/api/paas/v4/embeddings"


def _used_up(told: Told) -> Answer:
    """The moment of the reset is Beijing's, and does not say so."""
    worst = next(one for one in told.verdict.violated if one.quota.shape == "period")
    reset = datetime.fromtimestamp(told.until(worst.wait or 0), UTC) + BEIJING + timedelta(seconds=0.999)
    moment = reset.strftime("%Y-%m-%d %H:%M:%S")
    if worst.quota.per >= WEEK:
        return _refusal(429, "1310", f"您已达到每周/每月使用上限，您的限额将在 {moment} 重置")
    hours = f"{worst.quota.per / 3600:g}"
    return _refusal(429, "1308", f"已达到 {hours} 小时的使用上限。您的限额将在 {moment} 重置")


def _refusal(status: int, code: str, message: str) -> Answer:
    return Answer(status, {}, {"error": {"code": code, "message": message}})
