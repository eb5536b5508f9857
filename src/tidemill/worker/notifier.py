"""Creates webhook deliveries and alert messages. Both are jobs in the queue `tidemill`.

Each worker creates the deliveries for the jobs that it finished. The leader adds missing deliveries and
evaluates the alert rules."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tidemill.contract.store import Store
from tidemill.core.documents import Advance, Document
from tidemill.errors import StoreError
from tidemill.telemetry.events import (
    AlertSendFailed,
    AlertSent,
    JobDone,
    JobFailed,
    MaintenanceCrashed,
    MaintenanceFailed,
    StoreLost,
    StoreRecovered,
)
from tidemill.worker.claim_planner import ClaimPlanner
from tidemill.worker.event_emitter import EventEmitter, error_fields, error_fields_with_traceback
from tidemill.worker.leadership import LeaderElection, run_service
from tidemill.worker.outbox import DispatchSignal

if TYPE_CHECKING:
    from tidemill.notifications.config import NotificationConfig
    from tidemill.notifications.webhook_definitions import StoredWebhook


NOTIFICATION_QUEUE = "tidemill"
"""The queue of webhook deliveries and alert messages; every worker serves it once there are some."""
WEBHOOK_REFRESH_SECONDS = 10.0
"""Seconds until a worker knows a webhook that was added."""
FIND_INTERVAL_SECONDS = 5.0
PROGRESS_SAVE_SECONDS = 60.0
"""Seconds of finished jobs that a new leader may examine again."""
GATHER_SECONDS = 0.05
STORE_RETRY_SECONDS = 1.0
MAX_PENDING_JOBS = 100_000
"""Finished jobs beyond this number are left to the leader."""
JOBS_PER_LOAD = 500
OPERATION = "notifications"
_WEBHOOK_EVENTS: Mapping[type[JobDone | JobFailed], str] = {JobDone: "job.done", JobFailed: "job.failed"}
"""Event types by the name that webhooks use."""


class Notifier:
    """Creates webhook deliveries and alert messages. As soon as there are webhooks or alert rules, the worker
    also claims jobs from their queue."""

    def __init__(
        self,
        store: Store,
        notifications: NotificationConfig,
        leader: LeaderElection,
        emitter: EventEmitter,
        *,
        planner: ClaimPlanner,
        signal: DispatchSignal,
    ) -> None:
        from tidemill.notifications.outage_alerts import OutageAlerts
        from tidemill.notifications.webhook_finder import DeliveryFinder

        self._store, self._notifications, self._emitter = store, notifications, emitter
        self._planner, self._signal = planner, signal
        self._loop = asyncio.get_running_loop()
        mark = _config_digest(notifications)
        self._webhooks, self._alerts = leader.service(f"webhooks {mark}"), leader.service(f"alerts {mark}")
        self._webhook_list: list[StoredWebhook] = []
        self._is_declared = self._is_loaded = self._serves = False
        self._subscribed_events: tuple[type[JobDone | JobFailed], ...] = ()
        self._finished_ids: deque[str] = deque()
        self._work_pending = asyncio.Event()
        self._finder = DeliveryFinder(store, emitter.secrets)
        self._messages = 0
        self._broken: Mapping[str, Exception] = {}
        self._outage_alerts = OutageAlerts(
            notifications, emitter.worker, self._wall, sent=self._sent, failed=self._send_failed
        )

    @property
    def created(self) -> int:
        """A counter that grows whenever there may be new jobs of the notifier."""
        return self._finder.made + self._messages + self._serves

    def services(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yields the coroutines of the notifier. The caller runs them concurrently until the worker stops."""
        yield self._watch()
        yield self._run_own_deliveries()
        yield run_service(FIND_INTERVAL_SECONDS, self._webhooks, self.find, self._emitter)
        if self._notifications.rules:
            yield run_service(self._notifications.every, self._alerts, self.alert, self._emitter)
        if self._outage_alerts.is_enabled:
            self._emitter.signals.subscribe(self._outage_alerts.lost, StoreLost)
            self._emitter.signals.subscribe(self._outage_alerts.back, StoreRecovered)

    async def begin(self) -> None:
        """Loads the webhooks. Call it before the first job runs; otherwise a job that ends early gets no
        delivery."""
        if self._notifications.webhooks:
            with suppress(StoreError):
                await self._refresh_webhooks()

    async def add_flow_deliveries(self, before: Document, advance: Advance) -> Advance:
        from tidemill.notifications.webhook_deliveries import add_flow_deliveries

        if not self._is_loaded:  # a flow may end right after the worker's start
            await self._refresh_webhooks()
        return add_flow_deliveries(self._webhook_list, before, advance)

    async def find(self) -> bool:
        """Creates deliveries for finished jobs and pool changes that have no delivery yet. Only the leader
        runs it. Returns False, because no work is left."""
        webhooks = self._webhook_list  # webhooks added meanwhile were not searched for
        if not webhooks:
            return False
        now, before = (await self._store.read_clock()).wall, self._finder.made
        async for jobs in self._finder.ended(webhooks, now):
            await self._finder.tell(webhooks, self._bodies, jobs, now)
        pools = await self._find_pools(webhooks, now)
        for stored in webhooks:
            changes = pools.get(stored.name, {})
            if not 0 <= now - stored.webhook.delivered_until < PROGRESS_SAVE_SECONDS:
                changes["delivered_until"] = now
            if changes:
                await self._save_progress(stored, **changes)
        if self._finder.made > before:
            self._signal.request_claim()
        return False

    async def alert(self) -> bool:
        """Evaluates the alert rules and creates their messages. Only the leader runs it. Returns False,
        because no work is left."""
        from tidemill.notifications import alerts as rounds

        made, broken = await rounds.evaluate_alerts(self._store, self._notifications)
        self._messages += made
        if made:
            self._signal.request_claim()
        self._emit_broken_measures(broken)
        return False

    def _emit_broken_measures(self, broken: Mapping[str, Exception]) -> None:
        """Emits one event for each alert measure (a function of the application) that raises. It is repeated
        only after the measure has worked again."""
        for name in broken.keys() - self._broken.keys():
            self._emitter.worker_event(
                MaintenanceCrashed, operation=f"alert {name}", **error_fields_with_traceback(broken[name])
            )
        self._broken = broken

    async def finish(self) -> None:
        """Creates all missing deliveries. Used for a worker that runs until idle."""
        await self._refresh_webhooks()
        await self.find()

    async def close(self) -> None:
        """Creates the deliveries of this worker's last jobs. Records that the worker has stopped, so that no
        alert reports it as missing."""
        from tidemill.notifications import alerts as rounds

        await self._outage_alerts.close()
        await rounds.record_worker_stop(self._store, self._emitter.worker)
        await self._create_own_deliveries()

    def stop_listening(self) -> None:
        """Unsubscribes from the events for which webhooks and alerts listen."""
        for listener in (self._on_job_event, self._outage_alerts.lost, self._outage_alerts.back):
            self._emitter.signals.unsubscribe(listener)

    async def _watch(self) -> None:
        failing = False
        while True:
            try:
                await self._refresh_webhooks()
                failing = False
            except StoreError as error:
                if not failing:
                    self._emitter.worker_event(MaintenanceFailed, operation=OPERATION, **error_fields(error))
                failing = True
            except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
                self._emitter.worker_event(
                    MaintenanceCrashed, operation=OPERATION, **error_fields_with_traceback(error)
                )
            await asyncio.sleep(WEBHOOK_REFRESH_SECONDS)

    async def _refresh_webhooks(self) -> None:
        from tidemill.notifications import webhook_definitions
        from tidemill.notifications.webhook_definitions import WebhookOrigin

        declared = self._notifications.webhooks
        if not self._is_declared:
            await webhook_definitions.declare_webhooks(self._store, declared)
            self._is_declared = True
        self._webhook_list = [
            stored
            for stored in await webhook_definitions.list_webhooks(self._store)
            if stored.webhook.origin is WebhookOrigin.ADDED or stored.name in declared
        ]
        if not self._serves and (self._webhook_list or self._notifications.rules):
            await webhook_definitions.limit_notification_queue(self._store)
            self._serves = True
            self._planner.serve(NOTIFICATION_QUEUE)
        self._is_loaded = True
        self._listen()

    def _listen(self) -> None:
        """Subscribes to the job events that at least one webhook wants."""
        events = {what for stored in self._webhook_list for what in stored.webhook.spec.on}
        subscribed = tuple(kind for kind, what in _WEBHOOK_EVENTS.items() if what in events)
        if subscribed != self._subscribed_events:
            self._subscribed_events = subscribed
            self._emitter.signals.unsubscribe(self._on_job_event)
            if subscribed:
                self._emitter.signals.subscribe(self._on_job_event, *subscribed)

    def _on_job_event(self, event: JobDone | JobFailed) -> None:
        """Remembers the id of a finished job that a webhook wants. It must be quick, because it runs once per
        job."""
        if event.worker != self._emitter.worker or len(self._finished_ids) >= MAX_PENDING_JOBS:
            return
        what = _WEBHOOK_EVENTS[type(event)]
        specs = (stored.webhook.spec for stored in self._webhook_list if what in stored.webhook.spec.on)
        if any(w.matches_queue(event.queue) and (not w.tasks or event.task in w.tasks) for w in specs):
            self._finished_ids.append(event.job)
            self._work_pending.set()

    async def _run_own_deliveries(self) -> None:
        """Creates the deliveries for jobs that this worker finished; runs until cancelled. If that fails, the
        leader creates them."""
        while True:
            await self._work_pending.wait()
            await asyncio.sleep(GATHER_SECONDS)
            try:
                await self._create_own_deliveries()
            except StoreError:
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
                self._emitter.worker_event(
                    MaintenanceCrashed, operation=OPERATION, **error_fields_with_traceback(error)
                )

    async def _create_own_deliveries(self) -> None:
        while self._finished_ids:
            ids = [self._finished_ids.popleft() for _ in range(min(JOBS_PER_LOAD, len(self._finished_ids)))]
            try:
                jobs = [job for job in await self._store.get(ids) if job is not None]
                made = await self._finder.tell(self._webhook_list, self._bodies, jobs, self._wall())
            except (
                StoreError,
                asyncio.CancelledError,
            ):  # the jobs may be pruned before the leader finds them
                self._finished_ids.extendleft(reversed(ids))
                raise
            if made:
                self._signal.request_claim()
        self._work_pending.clear()

    async def _find_pools(self, webhooks: Sequence[StoredWebhook], now: float) -> dict[str, dict[str, Any]]:
        """Creates deliveries for closed or opened pools. Returns the fields to save, by webhook name."""
        from tidemill.notifications.webhook_definitions import WebhookEvent
        from tidemill.notifications.webhook_finder import find_pool_changes

        wanting = {WebhookEvent.POOL_CLOSED, WebhookEvent.POOL_OPENED}
        mine = [stored for stored in webhooks if wanting.intersection(stored.webhook.spec.on)]
        views = await self._store.pools() if mine else []
        changed: dict[str, dict[str, Any]] = {}
        for stored in mine:
            found, closed = find_pool_changes(stored.webhook, stored.revision, views)
            if closed != stored.webhook.closed:
                await self._finder.send(found, now)
                changed[stored.name] = {"closed": closed}
        return changed

    async def _save_progress(self, stored: StoredWebhook, **changes: Any) -> None:
        """Saves `changes` to a webhook, unless another process has changed the webhook since `stored` was
        read."""
        from msgspec.structs import replace

        from tidemill.notifications import webhook_definitions

        after = await webhook_definitions.update_webhook(
            self._store,
            stored.name,
            lambda before, _: None if before != stored.webhook else replace(before, **changes),
        )
        self._webhook_list = [
            after if after is not None and two.name == stored.name else two for two in self._webhook_list
        ]

    @property
    def _bodies(self) -> dict[str, Any]:
        return {name: declared.body for name, declared in self._notifications.webhooks.items()}

    def _wall(self) -> float:
        return self._emitter.wall(self._loop.time())

    def _sent(self, channel: str, message: Any) -> None:
        self._emitter.worker_event(AlertSent, channel=channel, title=message.title)

    def _send_failed(self, channel: str, error: Exception) -> None:
        self._emitter.worker_event(AlertSendFailed, channel=channel, **error_fields(error))


def _config_digest(notifications: NotificationConfig) -> str:
    """Returns a digest of the names of all webhooks and alert rules. Workers with the same digest share one
    leader."""
    known = "\0".join([*sorted(notifications.webhooks), "", *sorted(notifications.rules)])
    return blake2b(known.encode(), digest_size=6).hexdigest()
