"""What has ended and was not told yet: every end that is kept is found, whoever ended it and whoever died.

An end is found by its time, on the store's clock. One that is written a little later than it was dated must
be found too, so each look goes back a while; ids make telling twice harmless, and a memory makes it cheap.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from tidemill.contract.pools import PoolView
from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.job import Group, Job, NewJob
from tidemill.core.queues import Inserted, Verdict
from tidemill.errors import StoreError
from tidemill.tasks.redaction import TaskSecrets
from tidemill.telling import bodies, deliveries
from tidemill.telling.webhook import OWN_QUEUE, Body, Kept, Webhook, What

LOOK_BACK = 15.0
JOBS_AT_ONCE = 500
LOOKS = 10_000
"""A page for which so many were looked at ends there, so that nobody waits for it; the next goes on."""
PLACES = 1000
"""So many closed pools, or keys of them, are remembered; of more of them nothing is told."""

Bodies = Mapping[str, Body | None]
"""The application's own, by the webhook's name."""
Place = tuple[str, str | None]


class Finder:
    """Belongs to one worker. `made` counts deliveries."""

    def __init__(self, store: Store, secrets: TaskSecrets) -> None:
        self._store, self._secrets = store, secrets
        self._known: dict[str, float] = {}
        self.made = 0

    async def tell(self, webhooks: Sequence[Kept], bodies: Bodies, jobs: Iterable[Job], now: float) -> int:
        """Make the deliveries of jobs that have ended."""
        found = [
            deliveries.of_job(one.webhook, job, bodies.get(one.name), self._secrets)
            for job in jobs
            for one in webhooks
            if one.webhook.wanted.wants(job) and (job.finished or now) >= _since(one, now)
        ]
        return await self.send([delivery for delivery in found if delivery.id not in self._known], now)

    async def send(self, found: Sequence[NewJob], now: float) -> int:
        for start in range(0, len(found), JOBS_AT_ONCE):
            some = tuple(found[start : start + JOBS_AT_ONCE])
            [answers] = await self._store.insert([Group(OWN_QUEUE, some)])
            _require(answers)
            self._known |= {job.id: now for job in some}
        self.made += len(found)
        return len(found)

    async def ended(self, webhooks: Sequence[Kept], now: float) -> AsyncIterator[Sequence[Job]]:
        """Jobs that webhooks want, page by page; some were told before."""
        self._forget(now)
        for info in await self._store.queues():
            mine = [one for one in webhooks if one.webhook.wanted.wants_queue(info.name)]
            states = {state for one in mine for state in one.webhook.wanted.states}
            if not states:
                continue
            since = min(_since(one, now) for one in mine)
            tasks = {task for one in mine for task in one.webhook.wanted.tasks or ("",)}
            wanted = Filter(
                queue=info.name,
                states=tuple(sorted(states)),
                task=tasks.pop() if len(tasks) == 1 and "" not in tasks else None,
                time="finished",
                since=since,
            )
            async for page in self._pages(wanted):
                yield page

    async def _pages(self, wanted: Filter) -> AsyncIterator[Sequence[Job]]:
        cursor: int | None = None
        while True:
            page = await self._store.find(wanted, JOBS_AT_ONCE, cursor, LOOKS)
            yield page.jobs
            if (cursor := page.cursor) is None:
                return

    def _forget(self, now: float) -> None:
        self._known = {id_: at for id_, at in self._known.items() if now - at <= 2 * LOOK_BACK}


def _require(answers: Sequence[Inserted]) -> None:
    """What was not taken is found again: until then nothing is said to have been told."""
    for answer in answers:
        if answer.verdict not in (Verdict.ACCEPTED, Verdict.EXISTING):
            raise StoreError(
                f"queue {OWN_QUEUE!r} takes no deliveries: {answer.problem or 'max_length is reached'}; they "
                "are made when it does"
            )


def _since(one: Kept, now: float) -> float:
    """A wall clock that was set back dates new ends before what was told, and before the webhook was made."""
    back = min(one.webhook.told, now) - LOOK_BACK
    return back if one.created > now else max(back, one.created)


def changed_pools(
    webhook: Webhook, revision: int, views: Sequence[PoolView]
) -> tuple[list[NewJob], tuple[Place, ...]]:
    """Deliveries of what became of pools since it was looked at last, and those that are closed now."""
    by_place = {(view.name, view.key): view for view in views}
    shut = tuple(sorted((place for place, view in by_place.items() if _is_closed(view)), key=str)[:PLACES])
    before = set(webhook.closed)
    found = [
        deliveries.of_pool(webhook, what, f"{name} {key} {what} {revision}", _of_pool(by_place, name, key))
        for what, places in (
            (What.POOL_CLOSED, [one for one in shut if one not in before]),
            (What.POOL_OPENED, [one for one in webhook.closed if one not in shut]),
        )
        for name, key in places
        if webhook.wanted.wants_pool(what, name)
    ]
    return found, shut


def _of_pool(known: Mapping[Place, PoolView], name: str, key: str | None) -> dict[str, object]:
    view = known.get((name, key))
    return {"pool": {"name": name, "key": key}} if view is None else bodies.of_pool(view)


def _is_closed(view: PoolView) -> bool:
    return view.closed is not None or bool(view.closures)
