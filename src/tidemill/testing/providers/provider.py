"""A simulated provider: an account, a dialect, a clock, and what is drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import msgspec

from tidemill.clock import Clock
from tidemill.testing.providers.account import Account, Standing, Verdict
from tidemill.testing.providers.asked import Answer, Asked, BadRequest, Request
from tidemill.testing.providers.content import Content, Replies, said, vector
from tidemill.testing.providers.dialects import Dialect, Told
from tidemill.testing.providers.ledger import Bill, Ledger
from tidemill.testing.providers.options import Options, Reason
from tidemill.testing.providers.quota import TICKS, Quota, ticks

MADE_UP: dict[str, str] = {"x-simulator": "tidemill"}
"""On every answer: nobody should take a simulated one for a real one."""


class Served(msgspec.Struct):
    """`answer` is None when the connection is cut; then there may be a bill all the same."""

    answer: Answer | None
    bill: Bill | None = None


class Provider:
    """scale: how many of its seconds pass in one of the clock's, so that a window of a minute takes 2 s at
    30. start: what its calendar shows at the beginning, the clock's wall time unless told. The clock is only
    ever asked how much time has passed: setting a wall clock does not move a provider. replies: what the
    model says; without it a sentence that is the same for the same question."""

    def __init__(
        self,
        dialect: Dialect,
        quotas: Sequence[Quota],
        options: Options | None = None,
        *,
        clock: Clock,
        seed: int = 0,
        scale: float = 1.0,
        start: float | None = None,
        replies: Replies | None = None,
    ) -> None:
        self.dialect, self.options, self.quotas = dialect, options or Options(), tuple(quotas)
        self._require_words()
        self._clock, self._scale, self._began = clock, scale, clock.boot()
        wall = clock.wall() if start is None else start
        self._account = Account(self.quotas, self.options, wall=wall, seed=seed)
        self._draws = random.Random(seed)  # noqa: S311 - to be replayed is the point
        self._billed = self._answers = 0
        self._replies, self._told_of = replies or said, Counter[str]()

    @property
    def ledger(self) -> Ledger:
        """With everything others did until now."""
        self._account.advance(self._now())
        return self._account.ledger

    @property
    def now(self) -> float:
        """Seconds since its start, in its own time."""
        return self._now() / TICKS

    def standings(self, scope: str = "") -> tuple[Standing, ...]:
        """How every quota stands now."""
        self._account.advance(self._now())
        return self._account.standings(scope, self._now(), {})

    async def until(self, seconds: float) -> None:
        """Until that much of its own time has passed since its start."""
        while (left := ticks(seconds) - self._now()) > 0:  # noqa: ASYNC110 - a timer may be early by a hair
            await asyncio.sleep(left / TICKS / self._scale)

    async def serve(self, request: Request) -> Served:
        """One call from the moment it is sent; ends with the answer, or with the cut."""
        await self._pass(self._draws.uniform(0.0, self.options.jitter))
        try:
            asked = self.dialect.read(request, self.options.output_tokens)
        except BadRequest as complaint:
            return Served(_marked(complaint.answer))
        verdict = self._account.arrive(asked, self._now())
        if verdict.reason is not None:
            return Served(_marked(self.dialect.refuse(asked, self._told(verdict))))
        return await self._generate(asked, verdict)

    async def _generate(self, asked: Asked, verdict: Verdict) -> Served:
        await self._pass(self._draws.uniform(*self.options.latency))
        bill = self._account.finish(asked, verdict, self._now())
        self._billed += 1
        cut = self._billed in self.options.lost or self._draws.random() < self.options.lost_rate
        if cut:
            return Served(None, bill)
        standings = self._account.standings(verdict.scope, self._now(), {})
        after = Verdict(at=self._now(), scope=verdict.scope, reason=None, standings=standings)
        told = msgspec.structs.replace(self._told(after), content=await self._content(asked))
        return Served(_marked(self.dialect.answer(asked, told)), bill)

    async def _content(self, asked: Asked) -> Content:
        self._told_of[asked.kind] += 1
        number, faults = self._told_of[asked.kind], self.options.faults
        if asked.kind == "chat":
            return faults.of_chat(number, self._replies(asked))
        vectors = []
        for text in asked.texts:
            vectors.append(vector(text, asked.dimensions))
            await asyncio.sleep(0)  # a hundred of them take as many milliseconds, and others share the loop
        return faults.of_vectors(number, vectors)

    def _told(self, verdict: Verdict) -> Told:
        self._answers += 1
        return Told(verdict=verdict, wall=self._clock.wall(), scale=self._scale, number=self._answers)

    async def _pass(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds / self._scale)

    def _now(self) -> int:
        return ticks((self._clock.boot() - self._began) * self._scale)

    def _require_words(self) -> None:
        reasons: set[Reason] = {trouble.reason for trouble in self.options.troubles}
        if self.options.acceleration is not None:
            reasons.add(Reason.ACCELERATION)
        for quota in self.quotas:
            if quota.shape == "concurrent":
                reasons.add(Reason.CONCURRENCY)
            elif quota.shape in ("day", "period"):
                reasons.add(Reason(quota.shape))
        if unknown := reasons - self.dialect.speaks:
            raise ValueError(
                f"{self.dialect.name} never refuses for: {', '.join(sorted(unknown))}; "
                f"it does for: {', '.join(sorted(self.dialect.speaks))}"
            )


def _marked(answer: Answer) -> Answer:
    return msgspec.structs.replace(
        answer, headers={"content-type": "application/json"} | answer.headers | MADE_UP
    )
