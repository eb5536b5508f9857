"""Whatever is not plain: the engine's verbs, on rows that are looked up and written back in one step each.

Nothing is locked meanwhile. What a step rests on is compared when it is written, and where somebody else was
faster it begins anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from tidemill.clock import Entropy, SystemEntropy
from tidemill.engine import steps
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.engine.wants import Unloaded
from tidemill.errors import TidemillError
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.source import RedisSource, in_time

T = TypeVar("T")

PAUSE, LONGEST_PAUSE = 0.0005, 0.05


class Slow:
    """`entropy` is the store's; pauses draw from another, lest a replay draws otherwise."""

    def __init__(self, shard: Shard, entropy: Entropy) -> None:
        self.shard, self.entropy = shard, entropy
        self._jitter = SystemEntropy()

    async def run(self, plan: Plan, verb: Callable[[Records], T]) -> T:
        answer, _ = await self.run_timed(plan, verb)
        return answer

    async def run_timed(self, plan: Plan, verb: Callable[[Records], T]) -> tuple[T, float]:
        """... and `RedisSource.decided` of the try that was written."""
        step, tries = _Step(self, verb), 0
        while True:
            try:
                answer, _ = await steps.run(step.begin, plan, step.verb, self.entropy, step.pause)
            except _Torn:
                tries += 1
                await step.pause(tries)
            else:
                return answer, step.decided

    def source(self) -> RedisSource:
        return RedisSource(self.shard, self.entropy, self.shard.deadline())

    def new_turn(self) -> str:
        """A name that takes the turn when it looks."""
        return f"!{self._jitter.new_id()}"

    async def pause(self, tries: int) -> None:
        await self.shard.pause(min(PAUSE * tries, LONGEST_PAUSE) * (0.5 + self._jitter.chance()))


class _Torn(Exception):
    """Rows that were looked up one after the other were never true together."""


class _Step(Generic[T]):
    """A verb that stumbles over rows of several looks is not to blame: it begins anew. All its tries end by
    one deadline (I22)."""

    def __init__(self, slow: Slow, verb: Callable[[Records], T]) -> None:
        self._slow, self._verb = slow, verb
        self._until = slow.shard.deadline()
        self._source: RedisSource | None = None
        self._turn = ""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[RedisSource]:
        """Who was overtaken once takes the turn."""
        if self._source is not None:
            self._turn = self._turn or self._slow.new_turn()
        self._source = RedisSource(self._slow.shard, self._slow.entropy, self._until, self._turn)
        yield self._source

    @property
    def decided(self) -> float:
        return 0.0 if self._source is None else self._source.decided

    async def pause(self, tries: int) -> None:
        in_time(self._slow.shard, self._until)
        await self._slow.pause(tries)

    def verb(self, records: Records) -> T:
        try:
            return self._verb(records)
        except (Unloaded, TidemillError):
            raise
        except Exception as error:
            if self._source is None or self._source.looks == 1:
                raise
            raise _Torn from error
