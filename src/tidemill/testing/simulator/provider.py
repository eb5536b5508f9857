"""A simulated provider that tests call as a coroutine. It combines an account, a dialect and a clock."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import msgspec

from tidemill.clock import Clock
from tidemill.testing.simulator.account import QuotaDecision, QuotaStatus, SimulatedAccount
from tidemill.testing.simulator.dialects import Dialect, ReplyContext
from tidemill.testing.simulator.http_messages import (
    InvalidSimulatorRequest,
    SimulatorCall,
    SimulatorReply,
    SimulatorRequest,
)
from tidemill.testing.simulator.options import RefusalCause, SimulatorOptions
from tidemill.testing.simulator.quotas import TICKS_PER_SECOND, Quota, to_ticks
from tidemill.testing.simulator.replies import ReplyContent, ReplyFunction, default_reply, embed_text
from tidemill.testing.simulator.request_log import BillEntry, RequestLog
from tidemill.testing.simulator.speech import speak_text
from tidemill.testing.virtual_loop import VirtualLoop

SIMULATOR_HEADERS: dict[str, str] = {"x-simulator": "tidemill"}
"""Headers of every reply, so that a simulated reply is never mistaken for a real one."""


class SimulatorExchange(msgspec.Struct):
    """One call and its reply. `answer` is None if the connection was cut. `bill` is None if the call was not
    billed."""

    answer: SimulatorReply | None
    bill: BillEntry | None = None


class SimulatedProvider:
    """A simulated provider: an account, a dialect and a clock.

    - `scale`: how many simulated seconds pass per second of the clock; at 30, a minute takes 2 s.
    - `start`: the provider's wall time at the start; by default the wall time of the clock.
    - `replies`: returns the text of the model; by default a made-up sentence.

    A step of the wall clock does not affect the provider.
    """

    def __init__(
        self,
        dialect: Dialect,
        quotas: Sequence[Quota],
        options: SimulatorOptions | None = None,
        *,
        clock: Clock,
        seed: int = 0,
        scale: float = 1.0,
        start: float | None = None,
        replies: ReplyFunction | None = None,
    ) -> None:
        self.dialect, self.options, self.quotas = dialect, options or SimulatorOptions(), tuple(quotas)
        self._check_supported_causes()
        self._clock, self._scale, self._began = clock, scale, clock.boot()
        wall = clock.wall() if start is None else start
        self._account = SimulatedAccount(self.quotas, self.options, wall=wall, seed=seed)
        self._draws = random.Random(seed)  # noqa: S311 - deterministic on purpose
        self._billed = self._answers = 0
        self._replies, self._reply_counts = replies or default_reply, Counter[str]()

    @property
    def request_log(self) -> RequestLog:
        """The log of all requests, including external calls until now."""
        self._account.advance(self._now())
        return self._account.request_log

    @property
    def now(self) -> float:
        """Seconds since the provider's start, in simulated time."""
        return self._now() / TICKS_PER_SECOND

    def quota_statuses(self, scope: str = "") -> tuple[QuotaStatus, ...]:
        """Returns the current state of every quota. `scope` is the model or API key if counters are
        separate."""
        self._account.advance(self._now())
        return self._account.quota_statuses(scope, self._now(), {})

    async def until(self, seconds: float) -> None:
        """Waits until `seconds` of simulated time have passed since the provider's start."""
        while (left := to_ticks(seconds) - self._now()) > 0:  # noqa: ASYNC110 - a timer may fire slightly early
            await asyncio.sleep(left / TICKS_PER_SECOND / self._scale)

    async def serve(self, request: SimulatorRequest) -> SimulatorExchange:
        """Serves one call and returns the exchange. It counts the call, admits or refuses it, waits for the
        latency, and bills it."""
        await self._pass(self._draws.uniform(0.0, self.options.jitter))
        try:
            call = self.dialect.read(request, self.options.output_tokens)
        except InvalidSimulatorRequest as complaint:
            return SimulatorExchange(_add_simulator_headers(complaint.answer))
        verdict = self._account.arrive(call, self._now())
        if verdict.reason is not None:
            return SimulatorExchange(
                _add_simulator_headers(self.dialect.refuse(call, self._reply_context(verdict)))
            )
        return await self._generate(call, verdict)

    async def _generate(self, call: SimulatorCall, verdict: QuotaDecision) -> SimulatorExchange:
        await self._pass(self._draws.uniform(*self.options.latency))
        bill = self._account.finish(call, verdict, self._now())
        self._billed += 1
        cut = self._billed in self.options.lost or self._draws.random() < self.options.lost_rate
        if cut:
            return SimulatorExchange(None, bill)
        quota_statuses = self._account.quota_statuses(verdict.scope, self._now(), {})
        after = QuotaDecision(at=self._now(), scope=verdict.scope, reason=None, quota_statuses=quota_statuses)
        context = msgspec.structs.replace(self._reply_context(after), content=await self._content(call))
        return SimulatorExchange(_add_simulator_headers(self.dialect.answer(call, context)), bill)

    async def _content(self, call: SimulatorCall) -> ReplyContent:
        self._reply_counts[call.kind] += 1
        number, faults = self._reply_counts[call.kind], self.options.faults
        if call.kind == "chat":
            return faults.chat_content(number, self._replies(call))
        if call.kind == "speech":
            return ReplyContent(audio=speak_text(" ".join(call.texts), call.speed))
        vectors = []
        for text in call.texts:
            vectors.append(embed_text(text, call.dimensions))
            await asyncio.sleep(0)  # each vector takes about 1 ms; yield to other tasks on the loop
        return faults.vector_content(number, vectors)

    def _reply_context(self, verdict: QuotaDecision) -> ReplyContext:
        self._answers += 1
        return ReplyContext(verdict=verdict, wall=self._clock.wall(), scale=self._scale, number=self._answers)

    async def _pass(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds / self._scale)

    def _now(self) -> int:
        return to_ticks((self._clock.boot() - self._began) * self._scale)

    def _check_supported_causes(self) -> None:
        reasons: set[RefusalCause] = {disruption.reason for disruption in self.options.disruptions}
        if self.options.acceleration is not None:
            reasons.add(RefusalCause.ACCELERATION)
        for quota in self.quotas:
            if quota.shape == "concurrent":
                reasons.add(RefusalCause.CONCURRENCY)
            elif quota.shape in ("day", "period"):
                reasons.add(RefusalCause(quota.shape))
        if unknown := reasons - self.dialect.supported_causes:
            raise ValueError(
                f"{self.dialect.name} never refuses for: {', '.join(sorted(unknown))}; "
                f"it does for: {', '.join(sorted(self.dialect.supported_causes))}"
            )


def _add_simulator_headers(answer: SimulatorReply) -> SimulatorReply:
    return msgspec.structs.replace(
        answer, headers={"content-type": "application/json"} | answer.headers | SIMULATOR_HEADERS
    )


class LostReply(ConnectionError):
    """Raised if the connection was cut before the reply. The call was billed."""


class CallableProvider(SimulatedProvider):
    async def call(self, request: SimulatorRequest) -> SimulatorReply:
        """Sends a call and returns its reply. Raises LostReply if the connection was cut. The provider bills
        the call even if the caller is cancelled or killed."""
        loop = asyncio.get_running_loop()
        serving = self.serve(request)
        task: asyncio.Task[SimulatorExchange] = (
            loop.outside(serving) if isinstance(loop, VirtualLoop) else loop.create_task(serving)
        )
        served = await asyncio.shield(task)
        if served.answer is None:
            raise LostReply("the connection was closed before the answer came")
        if served.bill is not None:
            served.bill.answered = True
        return served.answer
