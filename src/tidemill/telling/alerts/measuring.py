"""What the store says of the things rules are on."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from tidemill.contract.pools import PoolView
from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.telling.alerts.book import Book
from tidemill.telling.alerts.rule import Measure, On, Rule
from tidemill.telling.deliveries import TASK
from tidemill.telling.webhook import OWN_QUEUE

Values = dict[str, float]
MOST_COUNTED = 1000
MEASURED_APART = frozenset({On.STORE_LOST, On.OWN})


class Look:
    """One look at the store; what several rules are on is asked for once."""

    def __init__(self, store: Store, book: Book, now: float) -> None:
        self._store, self._book, self._now = store, book, now
        self._asked: dict[object, Any] = {}

    async def measure(self, rule: Rule) -> Values:
        match rule.on:
            case On.QUEUE_LENGTH:
                return await self._lengths(rule)
            case On.OLDEST_JOB:
                return {queue: await self._oldest(queue) for queue in await self._queues(rule)}
            case On.FAILURE_RATIO:
                return {queue: await self._ratio(queue, rule) for queue in await self._queues(rule)}
            case On.DEAD_LETTERS:
                ends = {queue: await self._ends(queue, rule.window) for queue in await self._queues(rule)}
                return {queue: float(failed) for queue, (_, failed) in ends.items()}
            case On.POOL_CLOSED:
                return await self._closed(rule)
            case On.STORE_SIZE:
                return {"": float((await self._store.describe()).bytes or 0)}
            case On.WORKER_GONE:
                return dict.fromkeys(self._book.gone, 1.0)
        return {}

    async def _counts(self) -> dict[str, dict[State, int]]:
        if "counts" not in self._asked:
            self._asked["counts"] = await self._store.counts()
        found: dict[str, dict[State, int]] = self._asked["counts"]
        return found

    async def _queues(self, rule: Rule) -> list[str]:
        return [queue for queue in await self._counts() if rule.queue in (None, queue)]

    async def _lengths(self, rule: Rule) -> Values:
        waiting = (State.READY, State.SCHEDULED)
        return {
            queue: float(sum(states.get(state, 0) for state in waiting))
            for queue, states in (await self._counts()).items()
            if rule.queue in (None, queue)
        }

    async def _oldest(self, queue: str) -> float:
        if not (await self._counts())[queue].get(State.READY):
            return 0.0
        since = (await self._store.backlog(queue)).oldest_ready
        return 0.0 if since is None else max(0.0, self._now - since)

    async def _ends(self, queue: str, window: float) -> tuple[int, int]:
        """Done and failed."""
        if (queue, window) not in self._asked:
            minutes = await self._store.history(queue, self._now - window)
            failed = sum(m.failed for m in minutes)
            if failed and queue == OWN_QUEUE:
                failed = await self._given_up(window)
            self._asked[queue, window] = sum(m.done for m in minutes), failed
        found: tuple[int, int] = self._asked[queue, window]
        return found

    async def _given_up(self, window: float) -> int:
        """Deliveries of webhooks. That a message could not be sent is no alert: it would be another message,
        by the same way."""
        failed = Filter(
            queue=OWN_QUEUE, states=(State.FAILED,), task=TASK, time="finished", since=self._now - window
        )
        return len((await self._store.find(failed, MOST_COUNTED)).jobs)

    async def _ratio(self, queue: str, rule: Rule) -> float:
        done, failed = await self._ends(queue, rule.window)
        return failed / (done + failed) if done + failed >= rule.least else 0.0

    async def _closed(self, rule: Rule) -> Values:
        views = await self._store.pools()
        found: Values = {}
        for view in views:
            if rule.pool in (None, view.name) and (since := _closed_since(view)) is not None:
                subject = view.name if view.key is None else f"{view.name} {view.key}"
                found[subject] = max(0.0, self._now - since)
        return found


async def measured_by(own: Measure) -> Values:
    """What an application's own function says."""
    said = own()
    value = await said if inspect.isawaitable(said) else said
    found = dict(value) if isinstance(value, Mapping) else {"": float(value)}
    for subject, number in found.items():
        if not math.isfinite(number):
            raise ValueError(
                f"{subject or 'it'} was measured as {number}, which is over or under no threshold"
            )
    return found


def _closed_since(view: PoolView) -> float | None:
    since = [closure.since for closure in view.closures]
    since += [view.closed.since] if view.closed is not None else []
    return min(since, default=None)
