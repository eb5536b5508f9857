"""A store and the memory store beside it: both are told the same, and must answer the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.claims import Claimed, ClaimRequest, Claims, Settled
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.queues import Inserted
from tidemill.errors import TidemillError
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance import strategies as some
from tidemill.testing.conformance.difference import difference
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.manual import ManualClock, SeededEntropy

T = TypeVar("T")

EVERYTHING = 10_000
DIFFERS = "the store differs from the model"


class Pair(RuleBasedStateMachine):
    """What every rule needs; the rules are in the modules beside this one."""

    def __init__(self, make_store: MakeStore, arrive: Arrive) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.arrive = arrive
        self.model: Store = self.wait(MemoryStore(self.clock, SeededEntropy(1)).open())
        self.store: Store = self.wait(make_store(self.clock, SeededEntropy(1)).open())
        self.claims: list[Claimed] = []
        self.requests: dict[str, list[ClaimRequest]] = {worker: [] for worker in some.WORKERS}
        self.numbers: Counter[str] = Counter()
        self.used = 0

    def wait(self, what: Awaitable[T]) -> T:
        return self.loop.run_until_complete(_awaited(what))

    def both(self, verb: Callable[[Store], Awaitable[T]]) -> T | str:
        """The verb on model and store; the answers must be equal, refusals included."""
        expected = self.wait(_answer(verb(self.model)))
        answer = self.wait(_answer(verb(self.store)))
        if _comparable(answer) != _comparable(expected):
            raise AssertionError(f"{DIFFERS}:\n{difference(answer, expected)}")
        return expected

    def jobs(self) -> tuple[Job, ...]:
        page = self.both(lambda store: store.find(Filter(), EVERYTHING))
        if isinstance(page, str):
            raise AssertionError(f"{DIFFERS}: not even everything can be found: {page}")  # noqa: TRY004
        return page.jobs


async def _awaited(what: Awaitable[T]) -> T:
    return await what


async def _answer(verb: Awaitable[T]) -> T | str:
    try:
        return await verb
    except TidemillError as error:
        return type(error).__name__


def _comparable(answer: Any) -> Any:
    """Sentences are each store's own; that there is one is not. So is how long a claim waited (P20)."""
    if isinstance(answer, list):
        return [_comparable(item) for item in answer]
    if isinstance(answer, Inserted):
        return (answer.verdict, answer.id, bool(answer.problem))
    if isinstance(answer, Settled):
        return replace(answer, claims=_comparable(answer.claims))
    return replace(answer, waited=None) if isinstance(answer, Claims) else answer
