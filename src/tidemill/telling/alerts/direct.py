"""What is said when the store itself is gone: by every process that misses it, at once and without a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from tidemill.telemetry.base import WorkerEvent
from tidemill.telling.alerts.book import Alert, Happened, Notice, Stage
from tidemill.telling.alerts.rule import On, Rule
from tidemill.telling.alerts.wording import Message, message
from tidemill.telling.calling import called
from tidemill.telling.telling import Telling

TRY_AGAIN_AFTER = 30.0


class Direct:
    """`worker` is who says it; `wall` is the time. `sent` and `failed` are told what became of a message."""

    def __init__(
        self,
        telling: Telling,
        worker: str,
        wall: Callable[[], float],
        *,
        sent: Callable[[str, Message], None],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._telling, self._worker, self._wall = telling, worker, wall
        self._sent, self._failed = sent, failed
        self._loop = asyncio.get_running_loop()
        self._saying: list[asyncio.Task[None]] = []
        self._is_lost = False
        self._since = 0.0
        self._said: set[str] = set()

    @property
    def is_wanted(self) -> bool:
        return bool(self._telling.channels) and self._rule is not None

    def lost(self, event: WorkerEvent) -> None:
        if event.worker == self._worker:
            self._loop.call_soon_threadsafe(self._begin)

    def back(self, event: WorkerEvent) -> None:
        if event.worker == self._worker:
            self._loop.call_soon_threadsafe(self._end)

    async def close(self) -> None:
        until_now = self._saying
        self._instead([])
        await asyncio.gather(*until_now, return_exceptions=True)

    def _begin(self) -> None:
        if not self._is_lost:
            self._is_lost, self._since, self._said = True, self._wall(), set()
            self._instead([self._say_while_lost(name) for name in self._telling.channels])

    def _end(self) -> None:
        if self._is_lost:
            self._is_lost = False
            self._instead([self._say(name, Happened.OVER) for name in sorted(self._said)])

    def _instead(self, sayings: Iterable[Coroutine[Any, Any, None]]) -> None:
        """What is still being said is over: a channel that is down would say it for ever."""
        for task in self._saying:
            task.cancel()
        self._saying = [self._loop.create_task(saying) for saying in sayings]

    async def _say_while_lost(self, name: str) -> None:
        found = self._rule
        await asyncio.sleep(0.0 if found is None else found[1].raises_at + found[1].lasting)
        self._said.add(name)
        what = Happened.RAISED
        while True:
            await self._say(name, what)
            what = Happened.STILL
            await asyncio.sleep(self._telling.repeat)

    async def _say(self, name: str, what: Happened) -> None:
        """Until the channel takes it."""
        channel = self._telling.channels[name]
        while (text := self._text(what)) is not None:
            try:
                await called(partial(channel.send, text, self._wall()))
            except Exception as error:  # noqa: BLE001 - whatever it is, the channel is tried again
                self._failed(name, error)
                await asyncio.sleep(TRY_AGAIN_AFTER)
            else:
                self._sent(name, text)
                return

    def _text(self, what: Happened) -> Message | None:
        if (found := self._rule) is None:
            return None
        now = self._wall()
        alert = Alert(
            rule=found[0],
            on=On.STORE_LOST,
            subject=f"worker {self._worker}",
            stage=Stage.RAISED,
            since=self._since,
            value=now - self._since,
            threshold=found[1].raises_at,
        )
        notice = Notice(what=what, at=now, alert=alert)
        return message([notice], self._telling.where(), self._telling.public_url)

    @property
    def _rule(self) -> tuple[str, Rule] | None:
        found = [(name, rule) for name, rule in self._telling.rules.items() if rule.on is On.STORE_LOST]
        return found[0] if found else None
