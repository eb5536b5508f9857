"""Reads from the store the values that alert rules compare with their thresholds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from tidemill.contract.pools import PoolView
from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.notifications.alert_rules import AlertKind, AlertRule, AlertState, MeasureFunction
from tidemill.notifications.webhook_definitions import NOTIFICATION_QUEUE
from tidemill.notifications.webhook_deliveries import DELIVERY_TASK

SubjectValues = dict[str, float]
MAX_COUNTED_FAILURES = 1000
KINDS_READ_ELSEWHERE = frozenset({AlertKind.STORE_LOST, AlertKind.OWN})


class AlertReader:
    """Reads the values for one evaluation of the alert rules. A value that several rules need is read
    once."""

    def __init__(self, store: Store, alert_state: AlertState, now: float) -> None:
        self._store, self._alert_state, self._now = store, alert_state, now
        self._cache: dict[object, Any] = {}

    async def measure(self, rule: AlertRule) -> SubjectValues:
        match rule.on:
            case AlertKind.QUEUE_LENGTH:
                return await self._lengths(rule)
            case AlertKind.OLDEST_JOB:
                return {queue: await self._oldest(queue) for queue in await self._queues(rule)}
            case AlertKind.FAILURE_RATIO:
                return {queue: await self._ratio(queue, rule) for queue in await self._queues(rule)}
            case AlertKind.DEAD_LETTERS:
                outcome_counts = {
                    queue: await self._outcome_counts(queue, rule.window)
                    for queue in await self._queues(rule)
                }
                return {queue: float(failed) for queue, (_, failed) in outcome_counts.items()}
            case AlertKind.POOL_CLOSED:
                return await self._closed(rule)
            case AlertKind.STORE_SIZE:
                return {"": float((await self._store.describe()).bytes or 0)}
            case AlertKind.WORKER_GONE:
                return dict.fromkeys(self._alert_state.lost_workers, 1.0)
        return {}

    async def _counts(self) -> dict[str, dict[State, int]]:
        if "counts" not in self._cache:
            self._cache["counts"] = await self._store.counts()
        found: dict[str, dict[State, int]] = self._cache["counts"]
        return found

    async def _queues(self, rule: AlertRule) -> list[str]:
        return [queue for queue in await self._counts() if rule.queue in (None, queue)]

    async def _lengths(self, rule: AlertRule) -> SubjectValues:
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

    async def _outcome_counts(self, queue: str, window: float) -> tuple[int, int]:
        """Returns how many jobs of the queue were done and how many failed in the last `window` seconds."""
        if (queue, window) not in self._cache:
            minutes = await self._store.history(queue, self._now - window)
            failed = sum(m.failed for m in minutes)
            if failed and queue == NOTIFICATION_QUEUE:
                failed = await self._given_up(window)
            self._cache[queue, window] = sum(m.done for m in minutes), failed
        found: tuple[int, int] = self._cache[queue, window]
        return found

    async def _given_up(self, window: float) -> int:
        """Returns how many webhook deliveries failed for good in the last `window` seconds. Failed alert
        messages are not counted, because an alert about them would go through the same broken channel."""
        failed = Filter(
            queue=NOTIFICATION_QUEUE,
            states=(State.FAILED,),
            task=DELIVERY_TASK,
            time="finished",
            since=self._now - window,
        )
        return len((await self._store.find(failed, MAX_COUNTED_FAILURES)).jobs)

    async def _ratio(self, queue: str, rule: AlertRule) -> float:
        done, failed = await self._outcome_counts(queue, rule.window)
        return failed / (done + failed) if done + failed >= rule.min_jobs else 0.0

    async def _closed(self, rule: AlertRule) -> SubjectValues:
        views = await self._store.pools()
        found: SubjectValues = {}
        for view in views:
            if rule.pool in (None, view.name) and (since := _closed_since(view)) is not None:
                subject = view.name if view.key is None else f"{view.name} {view.key}"
                found[subject] = max(0.0, self._now - since)
        return found


async def call_measure(own: MeasureFunction) -> SubjectValues:
    """Calls the application's measure function and returns its values by subject (the thing measured). A
    single number gets an empty text as subject. Raises ValueError if a value is infinite or NaN."""
    result = own()
    value = await result if inspect.isawaitable(result) else result
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
