"""Alerts while the store is unreachable. Every worker that loses the store sends its own alerts directly,
without a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from tidemill.notifications.alert_messages import AlertMessage, format_message
from tidemill.notifications.alert_rules import (
    Alert,
    AlertChange,
    AlertKind,
    AlertNotice,
    AlertRule,
    AlertStage,
)
from tidemill.notifications.config import NotificationConfig
from tidemill.notifications.http_client import run_in_thread
from tidemill.telemetry.event_base import WorkerEvent

CHANNEL_RETRY_SECONDS = 30.0


class OutageAlerts:
    """Sends a message through each channel when the store is lost and when it is back.

    - `worker`: the sending worker
    - `wall`: returns the wall time
    - `sent`: called with channel and message after a success
    - `failed`: called with channel and error after a failure
    """

    def __init__(
        self,
        notifications: NotificationConfig,
        worker: str,
        wall: Callable[[], float],
        *,
        sent: Callable[[str, AlertMessage], None],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._notifications, self._worker, self._wall = notifications, worker, wall
        self._sent, self._failed = sent, failed
        self._loop = asyncio.get_running_loop()
        self._send_tasks: list[asyncio.Task[None]] = []
        self._is_lost = False
        self._since = 0.0
        self._notified_channels: set[str] = set()

    @property
    def is_enabled(self) -> bool:
        return bool(self._notifications.channels) and self._rule is not None

    def lost(self, event: WorkerEvent) -> None:
        if event.worker == self._worker:
            self._loop.call_soon_threadsafe(self._begin)

    def back(self, event: WorkerEvent) -> None:
        if event.worker == self._worker:
            self._loop.call_soon_threadsafe(self._end)

    async def close(self) -> None:
        until_now = self._send_tasks
        self._replace_sends([])
        await asyncio.gather(*until_now, return_exceptions=True)

    def _begin(self) -> None:
        if not self._is_lost:
            self._is_lost, self._since, self._notified_channels = True, self._wall(), set()
            self._replace_sends([self._send_during_outage(name) for name in self._notifications.channels])

    def _end(self) -> None:
        if self._is_lost:
            self._is_lost = False
            self._replace_sends(
                [self._send(name, AlertChange.OVER) for name in sorted(self._notified_channels)]
            )

    def _replace_sends(self, sends: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Cancels the messages that are still being sent and starts the new `sends`. Without the cancel, an
        old message to a broken channel would be tried forever."""
        for task in self._send_tasks:
            task.cancel()
        self._send_tasks = [self._loop.create_task(send) for send in sends]

    async def _send_during_outage(self, name: str) -> None:
        found = self._rule
        await asyncio.sleep(0.0 if found is None else found[1].raise_threshold + found[1].min_duration)
        self._notified_channels.add(name)
        what = AlertChange.RAISED
        while True:
            await self._send(name, what)
            what = AlertChange.STILL
            await asyncio.sleep(self._notifications.repeat)

    async def _send(self, name: str, what: AlertChange) -> None:
        """Sends one message through the channel `name`, and repeats it until the channel accepts it."""
        channel = self._notifications.channels[name]
        while (text := self._message(what)) is not None:
            try:
                await run_in_thread(partial(channel.send, text, self._wall()))
            except Exception as error:  # noqa: BLE001 - any error: the channel is tried again
                self._failed(name, error)
                await asyncio.sleep(CHANNEL_RETRY_SECONDS)
            else:
                self._sent(name, text)
                return

    def _message(self, what: AlertChange) -> AlertMessage | None:
        if (found := self._rule) is None:
            return None
        now = self._wall()
        alert = Alert(
            rule=found[0],
            on=AlertKind.STORE_LOST,
            subject=f"worker {self._worker}",
            stage=AlertStage.RAISED,
            since=self._since,
            value=now - self._since,
            threshold=found[1].raise_threshold,
        )
        notice = AlertNotice(what=what, at=now, alert=alert)
        return format_message([notice], self._notifications.where(), self._notifications.public_url)

    @property
    def _rule(self) -> tuple[str, AlertRule] | None:
        found = [
            (name, rule)
            for name, rule in self._notifications.rules.items()
            if rule.on is AlertKind.STORE_LOST
        ]
        return found[0] if found else None
