"""Webhook definitions, the events they subscribe to, and how the store keeps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.documents import Advance, Document, DocumentKind, DocumentUpdate
from tidemill.core.jobs import Error, Job
from tidemill.core.needs import LANE_SEPARATOR
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.core.validation import problem_with_name
from tidemill.errors import ConfigurationError
from tidemill.notifications.address_policy import parse_url


class FinishedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A finished job, as the application's body function receives it. `arguments` and `result` are decoded
    JSON and may contain secrets. Secrets are removed from `error` and `reason`."""

    id: str
    task: str
    queue: str
    state: State
    attempts: int
    generation: int
    created: float
    finished: float
    arguments: Any
    result: Any
    error: Error | None
    reason: str | None
    tags: tuple[str, ...]


NOTIFICATION_QUEUE = "tidemill"
"""The queue of deliveries and alert messages. Its own jobs send no webhooks, since each would cause
another."""
DEFAULT_SECRET_VARIABLE = "WEBHOOK_SECRET"  # noqa: S105 - the name of a variable, not a secret
WEBHOOK_DOCUMENT = "webhook"

_SECRET_VARIABLE = re.compile(rf"{DEFAULT_SECRET_VARIABLE}[A-Z0-9_]*")


class WebhookEvent(StrEnum):
    JOB_DONE = "job.done"
    JOB_FAILED = "job.failed"
    JOB_CANCELLED = "job.cancelled"
    FLOW_ENDED = "flow.ended"
    POOL_CLOSED = "pool.closed"
    POOL_OPENED = "pool.opened"


EVENTS_BY_STATE: Mapping[State, WebhookEvent] = {
    State.DONE: WebhookEvent.JOB_DONE,
    State.FAILED: WebhookEvent.JOB_FAILED,
    State.CANCELLED: WebhookEvent.JOB_CANCELLED,
}

BodyFunction = Callable[[FinishedJob], Any]
"""An application's function that returns the body of a job's delivery, as plain data."""


class WebhookOrigin(StrEnum):
    DECLARED = "declared"  # in code
    ADDED = "added"  # by the command line or the HTTP API


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A webhook to create.

    - `on`: the events to deliver
    - `tasks`, `queues`, `flows`, `pools`: names that select the events; empty selects all
    - `secret`: the environment variable with the signing secret; begins with WEBHOOK_SECRET
    """

    name: str
    url: str
    on: tuple[WebhookEvent, ...] = (WebhookEvent.JOB_DONE, WebhookEvent.JOB_FAILED)
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    secret: str = DEFAULT_SECRET_VARIABLE

    def problem(self) -> str | None:
        """Returns a text that says which field is invalid and why; None if the webhook is valid."""
        if problem := problem_with_name("name", self.name):
            return problem
        if LANE_SEPARATOR in self.name:
            return "name: must not hold the character U+001F"
        if not self.on:
            return f"on: must name at least one of {', '.join(WebhookEvent)}"
        if not _SECRET_VARIABLE.fullmatch(self.secret):
            # Signatures would allow an attacker to guess the value of any other variable.
            return (
                f"secret: must name a variable that begins with {DEFAULT_SECRET_VARIABLE}, "
                f"is {self.secret[:50]!r}"
            )
        for field in ("tasks", "queues", "flows", "pools"):
            for name in getattr(self, field):
                if problem := problem_with_name(field, name):
                    return problem
        try:
            parse_url(self.url)
        except ConfigurationError as error:
            return str(error)
        return None

    def wants(self, job: Job) -> bool:
        return (
            EVENTS_BY_STATE.get(job.state) in self.on
            and self.matches_queue(job.queue)
            and (not self.tasks or job.task in self.tasks)
        )

    def matches_queue(self, queue: str) -> bool:
        return queue != NOTIFICATION_QUEUE and (not self.queues or queue in self.queues)

    @property
    def states(self) -> frozenset[State]:
        return frozenset(state for state, what in EVENTS_BY_STATE.items() if what in self.on)

    def matches_flow(self, name: str) -> bool:
        return WebhookEvent.FLOW_ENDED in self.on and (not self.flows or name in self.flows)

    def matches_pool(self, what: WebhookEvent, pool: str) -> bool:
        return what in self.on and (not self.pools or pool in self.pools)


class DeclaredWebhook(msgspec.Struct, frozen=True):
    """A webhook declared in code. `event` replaces the name of the event in the delivery. `body` is a
    function that builds the delivery's body."""

    spec: NewWebhook
    event: str | None = None
    body: BodyFunction | None = None


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as the store keeps it.

    - `delivered_until`: a wall time; all jobs that finished before it have their deliveries
    - `event`: the application's own name for the event, or None
    - `by`: the operator who added the webhook
    - `closed`: the pools, with their keys, that were closed at the last check
    """

    spec: NewWebhook
    origin: WebhookOrigin
    delivered_until: float
    event: str | None = None
    by: str | None = None
    closed: tuple[tuple[str, str | None], ...] = ()


class StoredWebhook(msgspec.Struct, frozen=True):
    """A webhook, the wall time of its creation, and the document revision at which it was read."""

    webhook: Webhook
    created: float
    revision: int

    @property
    def name(self) -> str:
        return self.webhook.spec.name


def decode_webhook(document: Document) -> StoredWebhook:
    return StoredWebhook(
        msgspec.json.decode(document.record, type=Webhook), document.created, document.revision
    )


def check_webhook(webhook: NewWebhook) -> NewWebhook:
    if problem := webhook.problem():
        raise ConfigurationError(f"webhook {webhook.name[:50]!r}: {problem}")
    return webhook


def parse_webhook(**fields: Any) -> NewWebhook:
    """Returns a webhook built from keyword arguments. Raises ConfigurationError, whose message names the
    wrong field."""
    try:
        return check_webhook(msgspec.convert(fields, NewWebhook))
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"webhook {str(fields.get('name'))[:50]!r}: {error}") from None


WEBHOOKS_PER_PAGE = 500
MAX_CONCURRENT_DELIVERIES = 4
"""Per receiver, or per alert channel."""

WebhookUpdate = Callable[[Webhook | None, float], Webhook | None]
"""Maps the current webhook and the store's wall time to the new webhook; None changes nothing."""


def webhook_document_id(name: str) -> str:
    """Returns the id of the webhook's document: the prefix `webhook-` and a digest of the name."""
    return f"webhook-{blake2b(name.encode(), digest_size=16).hexdigest()}"


async def list_webhooks(store: Store) -> list[StoredWebhook]:
    """Returns all webhooks, sorted by name."""
    found: list[StoredWebhook] = []
    cursor: str | None = None
    while True:
        page = await store.find_documents(
            DocumentKind.RECORD, name=WEBHOOK_DOCUMENT, limit=WEBHOOKS_PER_PAGE, cursor=cursor
        )
        found += [decode_webhook(document) for document in page.documents]
        if (cursor := page.cursor) is None:
            return sorted(found, key=lambda stored: stored.name)


async def update_webhook(store: Store, name: str, alter: WebhookUpdate) -> StoredWebhook | None:
    """Reads the webhook, calls `alter` with it and the wall time, and writes the result. Repeats this if
    another process wrote meanwhile. Returns the stored webhook, or None if there is none."""
    while True:
        [document] = await store.documents(DocumentKind.RECORD, [webhook_document_id(name)])
        before = None if document is None else decode_webhook(document)
        now = (await store.read_clock()).wall
        after = alter(None if before is None else before.webhook, now)
        if after is None or (before is not None and after == before.webhook):
            return before
        expected = 0 if document is None else document.revision
        [answer] = await store.advance([_webhook_write(after, expected)])
        if answer.done and answer.document is not None:
            return decode_webhook(answer.document)


async def remove_webhook(store: Store, name: str) -> bool:
    """Deletes the webhook. False if there was none."""
    while True:
        [document] = await store.documents(DocumentKind.RECORD, [webhook_document_id(name)])
        if document is None:
            return False
        deletion = Advance(kind=DocumentKind.RECORD, id=document.id, expected=document.revision, next=None)
        [answer] = await store.advance([deletion])
        if answer.done:
            return True


async def declare_webhooks(store: Store, declared: Mapping[str, DeclaredWebhook]) -> None:
    """Stores the webhooks that the code declares, if they are new or changed. A changed webhook keeps its
    `delivered_until` time. Only workers whose code declares a webhook make its deliveries."""
    for name, webhook in declared.items():
        await update_webhook(store, name, _declared_webhook_update(webhook))


async def limit_notification_queue(store: Store) -> None:
    """Limits the concurrent deliveries per receiver, so that a receiver that hangs takes only a few slots. If
    the application declares settings for the queue of deliveries, nothing is changed."""
    known = {info.name: info.declared for info in await store.queues()}
    if known.get(NOTIFICATION_QUEUE, QueueSettings()) == QueueSettings():
        await store.declare({NOTIFICATION_QUEUE: QueueSettings(key_concurrency=MAX_CONCURRENT_DELIVERIES)})


def added_webhook_update(spec: NewWebhook, by: str) -> WebhookUpdate:
    def alter(before: Webhook | None, now: float) -> Webhook:
        delivered_until = now if before is None else before.delivered_until
        closed = () if before is None else before.closed
        return Webhook(
            spec=spec, origin=WebhookOrigin.ADDED, by=by, delivered_until=delivered_until, closed=closed
        )

    return alter


def _declared_webhook_update(declared: DeclaredWebhook) -> WebhookUpdate:
    def alter(before: Webhook | None, now: float) -> Webhook:
        base = before or Webhook(spec=declared.spec, origin=WebhookOrigin.DECLARED, delivered_until=now)
        return replace(base, spec=declared.spec, origin=WebhookOrigin.DECLARED, event=declared.event, by=None)

    return alter


def _webhook_write(webhook: Webhook, expected: int) -> Advance:
    becomes = DocumentUpdate(name=WEBHOOK_DOCUMENT, state=webhook.origin, record=msgspec.json.encode(webhook))
    return Advance(
        kind=DocumentKind.RECORD, id=webhook_document_id(webhook.spec.name), expected=expected, next=becomes
    )
