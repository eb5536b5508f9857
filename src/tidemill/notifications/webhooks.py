"""`app.webhooks`: lists, adds, removes and tests webhooks, also for the command line and the HTTP API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.states import State
from tidemill.errors import ConfigurationError, WebhookNotFound
from tidemill.notifications import webhook_definitions, webhook_deliveries
from tidemill.notifications.address_policy import AllowedAddresses, check_url_allowed
from tidemill.notifications.webhook_definitions import (
    NOTIFICATION_QUEUE,
    NewWebhook,
    StoredWebhook,
    Webhook,
    WebhookEvent,
    WebhookOrigin,
    check_webhook,
)


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook and the numbers of its deliveries.

    - `event`: the application's own name for the event, or None
    - `delivered_until`: a wall time; all jobs that finished before it have their deliveries
    - `waiting`: the number of deliveries that the receiver has not accepted yet, at most 1000
    - `failed`: the number of deliveries that are no longer tried, at most 1000
    """

    name: str
    url: str
    on: tuple[WebhookEvent, ...]
    tasks: tuple[str, ...]
    queues: tuple[str, ...]
    flows: tuple[str, ...]
    pools: tuple[str, ...]
    secret: str
    origin: WebhookOrigin
    event: str | None
    by: str | None
    created: float
    delivered_until: float
    waiting: int
    failed: int


class Webhooks:
    """`app.webhooks`: lists, adds, removes and tests webhooks."""

    def __init__(
        self, store: Callable[[], Awaitable[Store]], new_id: Callable[[], str], allowed: AllowedAddresses
    ) -> None:
        self._store, self._new_id, self._allowed = store, new_id, allowed

    async def list(self) -> list[WebhookView]:
        """Returns all webhooks, sorted by name. Webhooks declared in code appear after a worker has
        started."""
        store = await self._store()
        return [
            await _webhook_view(store, stored) for stored in await webhook_definitions.list_webhooks(store)
        ]

    async def get(self, name: str) -> WebhookView:
        """Returns one webhook. Raises WebhookNotFound."""
        store = await self._store()
        return await _webhook_view(store, await _require_webhook(store, name))

    async def add(self, spec: NewWebhook, *, by: str) -> WebhookView:
        """Adds a webhook, or replaces the added webhook of the same name. It takes effect within seconds, for
        jobs that finish from then on. `by` is the operator's name.

        Raises ConfigurationError if code declares a webhook with this name, or if the URL's numeric address
        may not be called.
        """
        check_webhook(spec)
        _check_url(spec, self._allowed)
        store = await self._store()
        put = webhook_definitions.added_webhook_update(spec, by)

        def unless_declared(before: Webhook | None, now: float) -> Webhook | None:
            if before is not None and before.origin is WebhookOrigin.DECLARED:
                raise ConfigurationError(
                    f"webhook {spec.name!r}: code declares it; change it there, or choose another name"
                )
            return put(before, now)

        found = await webhook_definitions.update_webhook(store, spec.name, unless_declared)
        return await _webhook_view(store, found or await _require_webhook(store, spec.name))

    async def remove(self, name: str) -> bool:
        """Removes a webhook and cancels its waiting deliveries. Returns False if there was no such webhook. A
        webhook declared in code is created again when a worker starts."""
        store = await self._store()
        was_there = await webhook_definitions.remove_webhook(store, name)
        waiting = _delivery_filter(name, State.SCHEDULED, State.READY)
        while (await store.amend(waiting, CancelJobs("the webhook was removed"), CANCEL_BATCH_SIZE)).changed:
            pass
        return was_there

    async def test(self, name: str) -> str:
        """Enqueues a delivery of the event `test` and returns the id of its job. Raises WebhookNotFound."""
        store = await self._store()
        stored = await _require_webhook(store, name)
        job = webhook_deliveries.test_delivery(stored.webhook, self._new_id())
        await store.insert([JobGroup(NOTIFICATION_QUEUE, (job,))])
        return job.id


def _check_url(spec: NewWebhook, allowed: AllowedAddresses) -> None:
    try:
        check_url_allowed(spec.url, allowed)
    except ConfigurationError as error:
        raise ConfigurationError(f"webhook {spec.name!r}: {error}") from None


MAX_COUNTED_DELIVERIES, MAX_DELIVERIES_SCANNED = 1000, 5000
CANCEL_BATCH_SIZE = 500


async def _require_webhook(store: Store, name: str) -> StoredWebhook:
    for stored in await webhook_definitions.list_webhooks(store):
        if stored.name == name:
            return stored
    raise webhook_not_found(name)


def webhook_not_found(name: str) -> WebhookNotFound:
    return WebhookNotFound(
        f"there is no webhook {name!r}; `tidemill webhooks` lists those there are, and a worker writes those "
        "that code declares when it starts"
    )


async def _webhook_view(store: Store, stored: StoredWebhook) -> WebhookView:
    spec, webhook = stored.webhook.spec, stored.webhook
    live = (State.SCHEDULED, State.READY, State.RUNNING)
    return WebhookView(
        **{name: getattr(spec, name) for name in spec.__struct_fields__},
        origin=webhook.origin,
        event=webhook.event,
        by=webhook.by,
        created=stored.created,
        delivered_until=webhook.delivered_until,
        waiting=await _count_deliveries(store, spec.name, *live),
        failed=await _count_deliveries(store, spec.name, State.FAILED),
    )


async def _count_deliveries(store: Store, webhook: str, *states: State) -> int:
    return len(
        (
            await store.find(
                _delivery_filter(webhook, *states), MAX_COUNTED_DELIVERIES, None, MAX_DELIVERIES_SCANNED
            )
        ).jobs
    )


def _delivery_filter(webhook: str, *states: State) -> Filter:
    return Filter(queue=NOTIFICATION_QUEUE, states=states, task=webhook_deliveries.DELIVERY_TASK, key=webhook)
