"""What is said when the store itself is gone: by every process that misses it, at once and without a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tidemill.telling.alerts.book import Alert, Happened, Notice, Stage
from tidemill.telling.alerts.channels import Channel, NotSent
from tidemill.telling.alerts.rule import On, Rule
from tidemill.telling.alerts.wording import Message, message
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
        failed: Callable[[str, NotSent], None],
    ) -> None:
        self._telling, self._worker, self._wall = telling, worker, wall
        self._sent, self._failed = sent, failed
        self._loop = asyncio.get_running_loop()
        self._saying: asyncio.Task[None] | None = None
        self._since = 0.0
        self._said = False

    @property
    def is_wanted(self) -> bool:
        return bool(self._telling.channels) and self._rule is not None

    def lost(self, _: object) -> None:
        self._loop.call_soon_threadsafe(self._begin)

    def back(self, _: object) -> None:
        self._loop.call_soon_threadsafe(self._end)

    async def close(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            await asyncio.gather(self._saying, return_exceptions=True)

    def _begin(self) -> None:
        if self._saying is None or self._saying.done():
            self._since, self._said = self._wall(), False
            self._saying = self._loop.create_task(self._say_while_lost())

    def _end(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            self._saying = self._loop.create_task(self._say(Happened.OVER)) if self._said else None

    async def _say_while_lost(self) -> None:
        found = self._rule
        await asyncio.sleep(0.0 if found is None else found[1].raises_at + found[1].lasting)
        what = Happened.RAISED
        while True:
            self._said = True
            await self._say(what)
            what = Happened.STILL
            await asyncio.sleep(self._telling.repeat)

    async def _say(self, what: Happened) -> None:
        if (found := self._rule) is None:
            return
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
        text = message([notice], self._telling.where(), self._telling.public_url)
        channels: Mapping[str, Channel] = self._telling.channels
        await asyncio.gather(*(self._send(name, channel, text) for name, channel in channels.items()))

    async def _send(self, name: str, channel: Channel, text: Message) -> None:
        while True:
            try:
                await asyncio.to_thread(channel.send, text, self._wall())
            except NotSent as error:
                self._failed(name, error)
                await asyncio.sleep(TRY_AGAIN_AFTER)
            else:
                self._sent(name, text)
                return

    @property
    def _rule(self) -> tuple[str, Rule] | None:
        found = [(name, rule) for name, rule in self._telling.rules.items() if rule.on is On.STORE_LOST]
        return found[0] if found else None
