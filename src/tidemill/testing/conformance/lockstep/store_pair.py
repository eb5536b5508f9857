"""A pair of stores: the store under test and the memory store. Runs each call on both and compares the
answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from operator import methodcaller
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, ClaimResult, SettleResult
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.queues import InsertResult
from tidemill.errors import TidemillError
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import ManualClock, SeededEntropy
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep import strategies as some
from tidemill.testing.conformance.lockstep.strategies import POOL_SETTINGS

_MAX_DIFFERENCES = 12


def format_difference(answer: object, expected: object) -> str:
    found = list(_differing_paths("answer", _to_plain(answer), _to_plain(expected)))
    return "\n".join(found[:_MAX_DIFFERENCES] + ["…"] * (len(found) > _MAX_DIFFERENCES))


def _to_plain(value: object) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def _differing_paths(at: str, answer: Any, expected: Any) -> Iterator[str]:
    if isinstance(answer, dict) and isinstance(expected, dict):
        for key in sorted(answer.keys() | expected.keys()):
            yield from _differing_paths(f"{at}.{key}", answer.get(key), expected.get(key))
    elif isinstance(answer, list | tuple) and isinstance(expected, list | tuple):
        if len(answer) != len(expected):
            yield f"{at} has {len(answer)} items instead of {len(expected)}"
        for index, pair in enumerate(zip(answer, expected, strict=False)):
            yield from _differing_paths(f"{at}[{index}]", *pair)
    elif answer != expected:
        yield f"{at} is {answer!r} instead of {expected!r}"


T = TypeVar("T")

MAX_JOBS = 10_000
DIFFERENCE_MESSAGE = "the store differs from the model"


class StorePair(RuleBasedStateMachine):
    """The base class of all lockstep rules. `store` is the store under test, `model` is the memory store."""

    def __init__(self, make_store: MakeStore, arrive: Arrive) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.arrive = arrive
        self.model: Store = self.wait(MemoryStore(self.clock, SeededEntropy(1)).open())
        self.store: Store = self.wait(make_store(self.clock, SeededEntropy(1)).open())
        self.claims: list[ClaimedJob] = []
        self.requests: dict[str, list[ClaimRequest]] = {worker: [] for worker in some.WORKERS}
        self.numbers: Counter[str] = Counter()
        self.used = 0

    def wait(self, what: Awaitable[T]) -> T:
        return self.loop.run_until_complete(_await_value(what))

    def both(self, verb: Callable[[Store], Awaitable[T]]) -> T | str:
        """Calls `verb` with each store and returns the answer of the memory store, or the name of the error
        that it raised. Raises AssertionError if the two answers or errors differ."""
        expected = self.wait(_run_verb(verb(self.model)))
        answer = self.wait(_run_verb(verb(self.store)))
        if _comparable(answer) != _comparable(expected):
            raise AssertionError(f"{DIFFERENCE_MESSAGE}:\n{format_difference(answer, expected)}")
        return expected

    def jobs(self) -> tuple[Job, ...]:
        page = self.both(lambda store: store.find(Filter(), MAX_JOBS))
        if isinstance(page, str):
            raise AssertionError(f"{DIFFERENCE_MESSAGE}: not even everything can be found: {page}")  # noqa: TRY004
        return page.jobs


async def _await_value(what: Awaitable[T]) -> T:
    return await what


async def _run_verb(verb: Awaitable[T]) -> T | str:
    try:
        return await verb
    except TidemillError as error:
        return type(error).__name__


def _comparable(answer: Any) -> Any:
    """Returns the answer without the parts that may differ between two stores: the text that explains why a
    job was refused, and the seconds that the store needed for a claim (P20)."""
    if isinstance(answer, list):
        return [_comparable(item) for item in answer]
    if isinstance(answer, InsertResult):
        return (answer.verdict, answer.id, bool(answer.problem))
    if isinstance(answer, SettleResult):
        return replace(answer, claims=_comparable(answer.claims))
    return replace(answer, waited=None) if isinstance(answer, ClaimResult) else answer


class ReadRules(StorePair):
    @rule(job_filter=some.filters, limit=st.integers(1, 4))
    def find_page_by_page(self, job_filter: Filter, limit: int) -> None:
        cursor: int | None = None
        while True:
            page = self.both(methodcaller("find", job_filter, limit, cursor))
            if isinstance(page, str) or page.cursor is None:
                return
            cursor = page.cursor

    @rule(text=some.search_texts)
    def search(self, text: str) -> None:
        """Searches both stores for `text`. The text occurs in some jobs or is similar to such a text, because
        a completely random text would rarely be found."""
        self.both(methodcaller("find", Filter(text=text), MAX_JOBS))

    @invariant()
    def readers_agree(self) -> None:
        self.jobs()
        self.both(lambda store: store.counts())
        self.both(lambda store: store.queues())

    def readers_agree_on_details(self) -> None:
        for job in self.jobs():
            self.both(methodcaller("logs", job.id))
            self.both(methodcaller("attempts", job.id))
            self.both(methodcaller("ahead", job.id))
            self.both(methodcaller("checkpoints", job.id))
        for queue in some.QUEUES:
            self.both(methodcaller("history", queue, 0.0))
            self.both(methodcaller("backlog", queue))
        for pool in (*POOL_SETTINGS, "nobody"):
            self.both(methodcaller("pool_history", pool, 0.0))
        self.both(lambda store: store.demand())
        self.both(lambda store: store.workers())
        self.both(_load_arrivals)

    def teardown(self) -> None:
        try:
            self.readers_agree_on_details()
        finally:
            self.wait(self.model.close())
            self.wait(self.store.close())
            self.loop.close()


async def _load_arrivals(store: Store) -> list[tuple[str, str, bytes, bytes]]:
    """Loads arrivals without their numbers and times, which each database assigns."""
    waiting = await store.arrivals(MAX_JOBS)
    return [(arrival.id, arrival.task, arrival.payload, arrival.options) for arrival in waiting]
