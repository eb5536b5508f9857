"""Webhooks in the store: read, and written if nobody was quicker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.courses import Advance, Kind, Next
from tidemill.core.queues import QueueSettings
from tidemill.telling.webhook import OWN_QUEUE, RECORD_NAME, Declared, Kept, NewWebhook, Origin, Webhook, kept

PAGE = 500
CALLS_AT_ONCE = 4
"""To one receiver, or by one channel."""

Alter = Callable[[Webhook | None, float], Webhook | None]
"""From a webhook as it is and the store's wall time to what it becomes; None leaves it alone."""


def record_id(name: str) -> str:
    """Records of all sorts share their ids, and a name may be as long as an id."""
    return f"webhook-{blake2b(name.encode(), digest_size=16).hexdigest()}"


async def every(store: Store) -> list[Kept]:
    """By name."""
    found: list[Kept] = []
    cursor: str | None = None
    while True:
        page = await store.find_courses(Kind.RECORD, name=RECORD_NAME, limit=PAGE, cursor=cursor)
        found += [kept(course) for course in page.courses]
        if (cursor := page.cursor) is None:
            return sorted(found, key=lambda one: one.name)


async def change(store: Store, name: str, alter: Alter) -> Kept | None:
    """The webhook as it is then, None when there is none."""
    while True:
        [course] = await store.courses(Kind.RECORD, [record_id(name)])
        before = None if course is None else kept(course)
        now = (await store.read_clock()).wall
        after = alter(None if before is None else before.webhook, now)
        if after is None or (before is not None and after == before.webhook):
            return before
        expected = 0 if course is None else course.revision
        [answer] = await store.advance([_advance(after, expected)])
        if answer.done and answer.course is not None:
            return kept(answer.course)


async def remove(store: Store, name: str) -> bool:
    """False when there was none."""
    while True:
        [course] = await store.courses(Kind.RECORD, [record_id(name)])
        if course is None:
            return False
        gone = Advance(kind=Kind.RECORD, id=course.id, expected=course.revision, next=None)
        [answer] = await store.advance([gone])
        if answer.done:
            return True


async def declare(store: Store, declared: Mapping[str, Declared]) -> None:
    """What is new or other is written; what was told stays told. Only who declares a webhook tells by it."""
    for name, one in declared.items():
        await change(store, name, _declared(one))


async def bound_own_queue(store: Store) -> None:
    """Who does not answer takes few slots of the fleet, however much waits for it. What an application
    declares of the queue itself stays."""
    known = {info.name: info.declared for info in await store.queues()}
    if known.get(OWN_QUEUE, QueueSettings()) == QueueSettings():
        await store.declare({OWN_QUEUE: QueueSettings(key_concurrency=CALLS_AT_ONCE)})


def added(wanted: NewWebhook, by: str) -> Alter:
    def alter(before: Webhook | None, now: float) -> Webhook:
        told = now if before is None else before.told
        closed = () if before is None else before.closed
        return Webhook(wanted=wanted, origin=Origin.ADDED, by=by, told=told, closed=closed)

    return alter


def _declared(one: Declared) -> Alter:
    def alter(before: Webhook | None, now: float) -> Webhook:
        base = before or Webhook(wanted=one.wanted, origin=Origin.DECLARED, told=now)
        return replace(base, wanted=one.wanted, origin=Origin.DECLARED, event=one.event, by=None)

    return alter


def _advance(webhook: Webhook, expected: int) -> Advance:
    becomes = Next(name=RECORD_NAME, state=webhook.origin, record=msgspec.json.encode(webhook))
    return Advance(kind=Kind.RECORD, id=record_id(webhook.wanted.name), expected=expected, next=becomes)
