"""The base class of all dialects, and their shared helpers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import msgspec

from tidemill.testing.simulator.account import QuotaDecision, QuotaStatus
from tidemill.testing.simulator.http_messages import SimulatorCall, SimulatorReply, SimulatorRequest
from tidemill.testing.simulator.options import RefusalCause
from tidemill.testing.simulator.quotas import TICKS_PER_SECOND, WINDOW_NAMES
from tidemill.testing.simulator.replies import ReplyContent


class ReplyContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a dialect needs to write a reply, except the call.

    - `verdict`: the decision to admit or refuse the call
    - `wall`: the wall time of the caller
    - `scale`: how many simulated seconds pass per second of the caller
    - `number`: the number of this reply, which makes its id unique
    - `content`: the text or the vectors of the model
    """

    verdict: QuotaDecision
    wall: float
    scale: float
    number: int
    content: ReplyContent = ReplyContent()

    def seconds(self, ticks: int) -> float:
        return ticks / TICKS_PER_SECOND / self.scale

    def wait(self) -> float | None:
        """Returns how many seconds the caller should wait: the longest known wait of the exceeded quotas.
        None if no wait is known."""
        waits = [quota_status.wait for quota_status in self.verdict.violated if quota_status.wait is not None]
        return self.seconds(max(waits)) if waits else None

    def until(self, ticks: int) -> float:
        return self.wall + self.seconds(ticks)

    def worst(self) -> QuotaStatus | None:
        """Returns the exceeded quota with the longest wait; None if none was exceeded. An unknown or infinite
        wait counts as the longest."""
        violated = self.verdict.violated
        return (
            max(violated, key=lambda violation: (violation.wait is None, violation.wait or 0))
            if violated
            else None
        )


class Dialect(ABC):
    """The API format of one provider. `supported_causes` are the refusals that this API can express."""

    name: ClassVar[str]
    supported_causes: ClassVar[frozenset[RefusalCause]]

    @abstractmethod
    def read(self, request: SimulatorRequest, default_output_tokens: int) -> SimulatorCall:
        """Returns the parsed request. Raises InvalidSimulatorRequest, with the provider's error reply, if it
        cannot be parsed."""

    @abstractmethod
    def answer(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply: ...

    @abstractmethod
    def refuse(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply: ...


def extract_texts(value: Any) -> tuple[str, ...]:
    """Returns every text in a message, in a list of messages, or in the parts of a message."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list):
        return tuple(text for item in value for text in extract_texts(item))
    if isinstance(value, dict):
        inside = (value[name] for name in ("content", "text", "parts") if name in value)
        return tuple(text for item in inside for text in extract_texts(item))
    return ()


def positive_or_zero(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def format_window(quota_status: QuotaStatus) -> str:
    """Returns the window as the provider's documentation names it: `minute`, `day`."""
    if quota_status.quota.shape == "day":
        return "day"
    return WINDOW_NAMES.get(quota_status.quota.per, f"{quota_status.quota.per:g} seconds")
