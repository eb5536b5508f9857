"""What every verb needs: the connection, chance, and a way to take a slow step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import TypeVar

from tidemill.clock import Entropy
from tidemill.contract.wakeups import job_topic
from tidemill.engine import steps
from tidemill.engine.plans import Plan
from tidemill.engine.steps import Verb
from tidemill.stores.postgres.connection import PATIENCE, Connection
from tidemill.stores.postgres.source import Source
from tidemill.stores.postgres.step import Step

T = TypeVar("T")

PATIENCE_FOR_EACH = 0.001
"""Seconds more for each row: a verb of ten thousand jobs may take longer than one of ten."""

_JOB = job_topic("")


class Home:
    def __init__(self, connection: Connection, entropy: Entropy) -> None:
        self.connection, self.entropy = connection, entropy

    def peek_claim_id(self) -> int:
        """The one that would be drawn next. A claim that finds nothing draws none, and who sends a claim
        cannot know: randomness that can be replayed must not depend on how a store asks."""
        return deepcopy(self.entropy).claim_id()

    async def run(self, plan: Plan, verb: Verb[T], *, repeatable: bool = True) -> T:
        """Look, decide, commit: in one transaction."""
        answer, _ = await self.run_timed(plan, verb, repeatable=repeatable)
        return answer

    async def run_timed(self, plan: Plan, verb: Verb[T], *, repeatable: bool = True) -> tuple[T, float]:
        """... and `Step.decided`."""

        async def work(step: Step) -> tuple[T, float]:
            return await self.run_in(step, plan, verb), step.decided

        return await self.connection.run(work, repeatable=repeatable, patience=patience_for(len(plan.first)))

    async def run_in(self, step: Step, plan: Plan, verb: Verb[T]) -> T:
        source = Source(step)
        await source.begin()

        @asynccontextmanager
        async def begin() -> AsyncIterator[Source]:
            yield source

        answer, changes = await steps.run(begin, plan, verb, self.entropy, _never)
        for topic in changes.topics:
            if topic.startswith(_JOB):
                step.ended.append(topic.removeprefix(_JOB))
            else:
                step.topics.add(topic)
        return answer


def patience_for(rows: int) -> float:
    return PATIENCE + rows * PATIENCE_FOR_EACH


async def _never(_tries: int) -> None:
    raise AssertionError("what a step has read is locked until it has written")
