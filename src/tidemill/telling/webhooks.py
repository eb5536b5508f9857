"""What programs, the command line and the HTTP API do with webhooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from tidemill.contract.store import Store
from tidemill.core.changes import Cancel
from tidemill.core.filters import Filter
from tidemill.core.job import Group
from tidemill.core.states import State
from tidemill.errors import ConfigurationError, WebhookNotFound
from tidemill.telling import deliveries, keeping
from tidemill.telling.addresses import Allowed, require_callable
from tidemill.telling.webhook import OWN_QUEUE, Kept, NewWebhook, Origin, Webhook, What, checked


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as people see it. `event` is the application's own word for what happened. What ended before
    `told` (wall) was told. `waiting` deliveries are yet to be made, `failed` ones were given up; no more
    than 1000 of each are counted, among the newest 5000."""

    name: str
    url: str
    on: tuple[What, ...]
    tasks: tuple[str, ...]
    queues: tuple[str, ...]
    flows: tuple[str, ...]
    pools: tuple[str, ...]
    secret: str
    origin: Origin
    event: str | None
    by: str | None
    created: float
    told: float
    waiting: int
    failed: int


class Webhooks:
    """`app.webhooks`."""

    def __init__(
        self, store: Callable[[], Awaitable[Store]], new_id: Callable[[], str], allowed: Allowed
    ) -> None:
        self._store, self._new_id, self._allowed = store, new_id, allowed

    async def list(self) -> list[WebhookView]:
        """All of them by name, those that code declares too, once a worker has started."""
        store = await self._store()
        return [await _view(store, one) for one in await keeping.every(store)]

    async def get(self, name: str) -> WebhookView:
        """Raises WebhookNotFound."""
        store = await self._store()
        return await _view(store, await _require(store, name))

    async def add(self, wanted: NewWebhook, *, by: str) -> WebhookView:
        """Make a webhook, or make it anew; it holds within seconds. What ended before is not told. An address
        that must not be called is refused; where a name leads is looked at when it is called."""
        checked(wanted)
        _require_callable(wanted, self._allowed)
        store = await self._store()
        put = keeping.added(wanted, by)

        def unless_declared(before: Webhook | None, now: float) -> Webhook | None:
            if before is not None and before.origin is Origin.DECLARED:
                raise ConfigurationError(
                    f"webhook {wanted.name!r}: code declares it; change it there, or choose another name"
                )
            return put(before, now)

        found = await keeping.change(store, wanted.name, unless_declared)
        return await _view(store, found or await _require(store, wanted.name))

    async def remove(self, name: str) -> bool:
        """Nothing more is told, and what waits is cancelled. False when there was none. One that code
        declares is back when a worker starts."""
        store = await self._store()
        was_there = await keeping.remove(store, name)
        waiting = _deliveries(name, State.SCHEDULED, State.READY)
        while (await store.amend(waiting, Cancel("the webhook was removed"), AT_ONCE)).changed:
            pass
        return was_there

    async def test(self, name: str) -> str:
        """Send a delivery whose event is `test`; answers the id of its job."""
        store = await self._store()
        one = await _require(store, name)
        job = deliveries.of_test(one.webhook, self._new_id())
        await store.insert([Group(OWN_QUEUE, (job,))])
        return job.id


def _require_callable(wanted: NewWebhook, allowed: Allowed) -> None:
    try:
        require_callable(wanted.url, allowed)
    except ConfigurationError as error:
        raise ConfigurationError(f"webhook {wanted.name!r}: {error}") from None


MOST_COUNTED, LOOKS = 1000, 5000
AT_ONCE = 500


async def _require(store: Store, name: str) -> Kept:
    for one in await keeping.every(store):
        if one.name == name:
            return one
    raise not_found(name)


def not_found(name: str) -> WebhookNotFound:
    return WebhookNotFound(
        f"there is no webhook {name!r}; `tidemill webhooks` lists those there are, and a worker writes those "
        "that code declares when it starts"
    )


async def _view(store: Store, one: Kept) -> WebhookView:
    wanted, webhook = one.webhook.wanted, one.webhook
    live = (State.SCHEDULED, State.READY, State.RUNNING)
    return WebhookView(
        **{name: getattr(wanted, name) for name in wanted.__struct_fields__},
        origin=webhook.origin,
        event=webhook.event,
        by=webhook.by,
        created=one.created,
        told=webhook.told,
        waiting=await _count(store, wanted.name, *live),
        failed=await _count(store, wanted.name, State.FAILED),
    )


async def _count(store: Store, webhook: str, *states: State) -> int:
    return len((await store.find(_deliveries(webhook, *states), MOST_COUNTED, None, LOOKS)).jobs)


def _deliveries(webhook: str, *states: State) -> Filter:
    return Filter(queue=OWN_QUEUE, states=states, task=deliveries.TASK, key=webhook)
