"""Finds finished jobs and pool changes that have no webhook delivery yet, also those of dead workers.

The store may write a job a little later than its finish time. So each search begins `LOOK_BACK_SECONDS`
before the end of the previous search. A job that is found twice creates one delivery, because the delivery id
is the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from tidemill.contract.pools import PoolView
from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job, JobGroup, NewJob
from tidemill.core.queues import InsertResult, InsertVerdict
from tidemill.errors import StoreError
from tidemill.notifications import webhook_deliveries
from tidemill.notifications.webhook_definitions import (
    NOTIFICATION_QUEUE,
    BodyFunction,
    StoredWebhook,
    Webhook,
    WebhookEvent,
)
from tidemill.tasks.redaction import TaskSecrets

LOOK_BACK_SECONDS = 15.0
JOBS_PER_PAGE = 500
MAX_JOBS_SCANNED = 10_000
"""One page scans at most this many jobs, so that it returns soon; the next page continues there."""
MAX_CLOSED_POOLS = 1000
"""At most this many closed pools or keys are remembered; further ones send no delivery."""

BodyFunctions = Mapping[str, BodyFunction | None]
"""Body functions of the application, by webhook name."""
PoolKey = tuple[str, str | None]


class DeliveryFinder:
    """Creates webhook deliveries for the finished jobs and pool changes that one worker finds. `made` counts
    these deliveries; another worker may have created some of them."""

    def __init__(self, store: Store, secrets: TaskSecrets) -> None:
        self._store, self._secrets = store, secrets
        self._known: dict[str, float] = {}
        self.made = 0

    async def tell(
        self, webhooks: Sequence[StoredWebhook], bodies: BodyFunctions, jobs: Iterable[Job], now: float
    ) -> int:
        """Creates the deliveries of the finished `jobs` and returns their number. Deliveries that another
        worker had created may be counted too. `bodies` maps names of webhooks to functions that build the
        body."""
        found = [
            webhook_deliveries.job_delivery(stored.webhook, job, bodies.get(stored.name), self._secrets)
            for job in jobs
            for stored in webhooks
            if stored.webhook.spec.wants(job) and (job.finished or now) >= _search_start(stored, now)
        ]
        return await self.send([delivery for delivery in found if delivery.id not in self._known], now)

    async def send(self, found: Sequence[NewJob], now: float) -> int:
        for start in range(0, len(found), JOBS_PER_PAGE):
            some = tuple(found[start : start + JOBS_PER_PAGE])
            [answers] = await self._store.insert([JobGroup(NOTIFICATION_QUEUE, some)])
            _check_inserted(answers)
            self._known |= {job.id: now for job in some}
        self.made += len(found)
        return len(found)

    async def ended(self, webhooks: Sequence[StoredWebhook], now: float) -> AsyncIterator[Sequence[Job]]:
        """Yields pages of finished jobs that at least one webhook wants. Some of these jobs have deliveries
        already."""
        self._forget(now)
        for info in await self._store.queues():
            mine = [stored for stored in webhooks if stored.webhook.spec.matches_queue(info.name)]
            states = {state for stored in mine for state in stored.webhook.spec.states}
            if not states:
                continue
            since = min(_search_start(stored, now) for stored in mine)
            tasks = {task for stored in mine for task in stored.webhook.spec.tasks or ("",)}
            job_filter = Filter(
                queue=info.name,
                states=tuple(sorted(states)),
                task=tasks.pop() if len(tasks) == 1 and "" not in tasks else None,
                time="finished",
                since=since,
            )
            async for page in self._pages(job_filter):
                yield page

    async def _pages(self, job_filter: Filter) -> AsyncIterator[Sequence[Job]]:
        cursor: int | None = None
        while True:
            page = await self._store.find(job_filter, JOBS_PER_PAGE, cursor, MAX_JOBS_SCANNED)
            yield page.jobs
            if (cursor := page.cursor) is None:
                return

    def _forget(self, now: float) -> None:
        self._known = {id_: at for id_, at in self._known.items() if now - at <= 2 * LOOK_BACK_SECONDS}


def _check_inserted(answers: Sequence[InsertResult]) -> None:
    """Raises StoreError if the store refused a delivery, for example because the queue of deliveries is full.
    A worker tries again later."""
    for answer in answers:
        if answer.verdict not in (InsertVerdict.ACCEPTED, InsertVerdict.EXISTING):
            raise StoreError(
                f"queue {NOTIFICATION_QUEUE!r} takes no deliveries: "
                f"{answer.problem or 'max_length is reached'}; "
                "they are made when it does"
            )


def _search_start(stored: StoredWebhook, now: float) -> float:
    """Returns the wall time from which to search for finished jobs of the webhook. After the wall clock was
    set back, it returns an earlier time, so that no new job is missed."""
    back = min(stored.webhook.delivered_until, now) - LOOK_BACK_SECONDS
    return back if stored.created > now else max(back, stored.created)


def find_pool_changes(
    webhook: Webhook, revision: int, views: Sequence[PoolView]
) -> tuple[list[NewJob], tuple[PoolKey, ...]]:
    """Returns the deliveries for pools that closed or opened since the last check, and the pools that are
    closed now. `revision` is the revision of the webhook's document; it makes the delivery ids unique."""
    by_pool_key = {(view.name, view.key): view for view in views}
    closed_now = tuple(
        sorted((pool_key for pool_key, view in by_pool_key.items() if _is_closed(view)), key=str)[
            :MAX_CLOSED_POOLS
        ]
    )
    before = set(webhook.closed)
    found = [
        webhook_deliveries.pool_delivery(
            webhook, what, f"{name} {key} {what} {revision}", _pool_body_or_name(by_pool_key, name, key)
        )
        for what, places in (
            (WebhookEvent.POOL_CLOSED, [changed for changed in closed_now if changed not in before]),
            (WebhookEvent.POOL_OPENED, [changed for changed in webhook.closed if changed not in closed_now]),
        )
        for name, key in places
        if webhook.spec.matches_pool(what, name)
    ]
    return found, closed_now


def _pool_body_or_name(known: Mapping[PoolKey, PoolView], name: str, key: str | None) -> dict[str, object]:
    view = known.get((name, key))
    return {"pool": {"name": name, "key": key}} if view is None else webhook_deliveries.pool_body(view)


def _is_closed(view: PoolView) -> bool:
    return view.closed is not None or bool(view.closures)
