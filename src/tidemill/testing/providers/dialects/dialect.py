"""What every dialect can do, and what they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import msgspec

from tidemill.testing.providers.account import Standing, Verdict
from tidemill.testing.providers.asked import Answer, Asked, Request
from tidemill.testing.providers.content import Content
from tidemill.testing.providers.options import Reason
from tidemill.testing.providers.quota import NAMES, TICKS


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer may be made of besides the call. Callers wait in their own time: `wall` is theirs, and
    a provider that runs faster by `scale` tells waits that are shorter by it. `number` makes ids."""

    verdict: Verdict
    wall: float
    scale: float
    number: int
    content: Content = Content()

    def seconds(self, ticks: int) -> float:
        return ticks / TICKS / self.scale

    def wait(self) -> float | None:
        """How long the caller should wait, over everything that was violated."""
        waits = [standing.wait for standing in self.verdict.violated if standing.wait is not None]
        return self.seconds(max(waits)) if waits else None

    def until(self, ticks: int) -> float:
        return self.wall + self.seconds(ticks)

    def worst(self) -> Standing | None:
        """What is waited for longest; what never comes before everything else."""
        violated = self.verdict.violated
        return max(violated, key=lambda one: (one.wait is None, one.wait or 0)) if violated else None


class Dialect(ABC):
    """`speaks`: the reasons for which this provider has words."""

    name: ClassVar[str]
    speaks: ClassVar[frozenset[Reason]]

    @abstractmethod
    def read(self, request: Request, usual_output: int) -> Asked:
        """Raises BadRequest with the provider's own complaint."""

    @abstractmethod
    def answer(self, asked: Asked, told: Told) -> Answer: ...

    @abstractmethod
    def refuse(self, asked: Asked, told: Told) -> Answer: ...


def texts_in(value: Any) -> tuple[str, ...]:
    """Every text in a message, a list of messages, or parts of one."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list):
        return tuple(text for item in value for text in texts_in(item))
    if isinstance(value, dict):
        inside = (value[name] for name in ("content", "text", "parts") if name in value)
        return tuple(text for item in inside for text in texts_in(item))
    return ()


def positive(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def window_word(standing: Standing) -> str:
    """`minute`, `day`: the word of the provider's own documentation."""
    if standing.quota.shape == "day":
        return "day"
    return NAMES.get(standing.quota.per, f"{standing.quota.per:g} seconds")
