"""The ZhipuAI GLM API: it sends no rate-limit headers. Nearly every error is a 429; a code in the body gives
the reason."""

from __future__ import annotations

# ruff: noqa: RUF001 - Chinese punctuation
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from tidemill.testing.simulator.dialects.base import Dialect, ReplyContext
from tidemill.testing.simulator.dialects.openai import OpenAIDialect, completion_body
from tidemill.testing.simulator.http_messages import SimulatorCall, SimulatorReply, SimulatorRequest
from tidemill.testing.simulator.options import RefusalCause

BEIJING_OFFSET = timedelta(hours=8)
WEEK_SECONDS = 7 * 86_400.0

ERRORS_BY_CAUSE: dict[RefusalCause, tuple[int, str, str]] = {
    RefusalCause.CONCURRENCY: (429, "1302", "您当前使用该API的并发数过高，请降低并发，或联系客服增加限额"),
    RefusalCause.RATE: (429, "1303", "您当前使用该API的频率过高，请降低频率，或联系客服增加限额"),
    RefusalCause.ACCELERATION: (429, "1302", "您的账户已达到速率限制，请您控制请求频率"),
    RefusalCause.DAY: (429, "1304", "该API已达今日调用次数限额，如有更多需求，请联系客服购买"),
    RefusalCause.OVERLOAD: (429, "1305", "该模型当前访问量过大，请您稍后再试"),
    RefusalCause.NO_CREDIT: (429, "1113", "您的账户已欠费，请充值后重试"),
    RefusalCause.PLAN_EXPIRED: (429, "1309", "您的套餐已到期，暂无法使用，续订后即可恢复"),
    RefusalCause.FAIR_USE: (429, "1313", "您的账户当前使用模式不符合公平使用策略，请求频率已受到限制"),
    RefusalCause.CONTENT: (429, "1301", "系统检测到输入或生成内容可能包含不安全或敏感内容"),
    RefusalCause.WRONG_KEY: (401, "1000", "身份验证失败"),
    RefusalCause.TOO_LARGE: (400, "1261", "Prompt 超长"),
}


class GlmDialect(Dialect):
    """The GLM API. `overload` is the error code of an overload: 1305, or 1312, which recommends other
    models."""

    name: ClassVar[str] = "glm"
    supported_causes: ClassVar[frozenset[RefusalCause]] = frozenset(ERRORS_BY_CAUSE) | {
        RefusalCause.PERIOD,
        RefusalCause.NOT_ON_TIER,
    }

    def __init__(self, *, overload: str = "1305") -> None:
        self._overload = overload
        self._reader = _GlmRequestReader()

    def read(self, request: SimulatorRequest, default_output_tokens: int) -> SimulatorCall:
        return self._reader.read(request, default_output_tokens)

    def answer(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply:
        body = completion_body(call, context)
        if call.kind == "chat":
            body |= {"request_id": call.mark or f"simulated{context.number:08d}"}
        return SimulatorReply(200, {}, body)

    def refuse(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply:
        reason = context.verdict.reason
        if reason is RefusalCause.NOT_ON_TIER:
            return _error_reply(429, "1311", f"当前订阅套餐暂未开放{call.model}权限")
        if reason is RefusalCause.PERIOD:
            return _quota_used_reply(context)
        if reason not in ERRORS_BY_CAUSE:
            raise ValueError(f"{reason}: this dialect has no words for it")
        status, code, text = ERRORS_BY_CAUSE[reason]
        return _error_reply(status, self._overload if reason is RefusalCause.OVERLOAD else code, text)


class _GlmRequestReader(OpenAIDialect):
    """Parses requests, which have the format of OpenAI's."""

    chat = "/api/paas/v4/chat/completions"
    embeddings = "/api/paas/v4/embeddings"
    speech = ""


def _quota_used_reply(context: ReplyContext) -> SimulatorReply:
    """Builds the reply for a used-up quota. Its reset time is Beijing time, without a time zone."""
    worst = next(violation for violation in context.verdict.violated if violation.quota.shape == "period")
    reset = (
        datetime.fromtimestamp(context.until(worst.wait or 0), UTC)
        + BEIJING_OFFSET
        + timedelta(seconds=0.999)
    )
    moment = reset.strftime("%Y-%m-%d %H:%M:%S")
    if worst.quota.per >= WEEK_SECONDS:
        return _error_reply(429, "1310", f"您已达到每周/每月使用上限，您的限额将在 {moment} 重置")
    hours = f"{worst.quota.per / 3600:g}"
    return _error_reply(429, "1308", f"已达到 {hours} 小时的使用上限。您的限额将在 {moment} 重置")


def _error_reply(status: int, code: str, message: str) -> SimulatorReply:
    return SimulatorReply(status, {}, {"error": {"code": code, "message": message}})
