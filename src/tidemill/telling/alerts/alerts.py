"""What programs, the command line and the HTTP API do with alerts."""

from __future__ import annotations

from functools import partial

import msgspec

from tidemill.telling.alerts.book import Stage
from tidemill.telling.alerts.channels import NotSent
from tidemill.telling.alerts.rule import On, Rule
from tidemill.telling.alerts.wording import Message, page, sentence
from tidemill.telling.calling import called
from tidemill.telling.telling import Telling


class AlertView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, or was until lately. `sentence` says what, `since` when it began (wall),
    `said` when people were last told, `page` where on the dashboard it is to be seen."""

    rule: str
    on: On
    subject: str
    stage: Stage
    since: float
    value: float
    threshold: float
    said: float | None
    sentence: str
    page: str


class Alerts:
    """`app.alerts`."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    @property
    def rules(self) -> dict[str, Rule]:
        """Those that hold for this program, by name."""
        return dict(self._telling.rules)

    @property
    def channels(self) -> tuple[str, ...]:
        """By which people are reached; none is set by default."""
        return tuple(self._telling.channels)

    async def states(self) -> list[AlertView]:
        """What is wrong now, what may be, and what was until lately; those that are raised first."""
        from tidemill.telling.alerts.round import read

        _, book = await read(await self._telling.store())
        found = sorted(book.alerts.values(), key=lambda one: (_ORDER[one.stage], one.since))
        return [
            AlertView(**msgspec.structs.asdict(one), sentence=sentence(one), page=page(one)) for one in found
        ]

    async def test(self) -> dict[str, str | None]:
        """Send a message by every channel, directly; what went wrong with each, None when nothing did."""
        raised = sum(one.stage is Stage.RAISED for one in await self.states())
        text = f"This is a test. Raised now: {raised}.\n\nStore: {self._telling.where()}\n"
        message = Message("[Tidemill] a test", text)
        found: dict[str, str | None] = {}
        for name, channel in self._telling.channels.items():
            try:
                await called(partial(channel.send, message, self._telling.clock().wall()))
                found[name] = None
            except NotSent as error:
                found[name] = str(error)
        return found


_ORDER = {Stage.RAISED: 0, Stage.WAITING: 1, Stage.OVER: 2}
