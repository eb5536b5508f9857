"""What holds for a queue, read from its row and kept until the row changes."""

from __future__ import annotations

import apsw
import msgspec

from tidemill.contract.queues import QueueInfo
from tidemill.core.queues import Override, Pause, QueueSettings
from tidemill.stores.sqlite.ledger import PoolCache
from tidemill.stores.sqlite.statements import load

SQL = load("queues")
_SETTINGS = msgspec.json.Decoder(QueueSettings)
_OVERRIDE = msgspec.json.Decoder(Override)
_PAUSE = msgspec.json.Decoder(Pause)
_DEFAULT = QueueSettings()

QueueTexts = tuple[str, str | None, str | None]


class QueueRow(msgspec.Struct, frozen=True):
    """`overridden` is what holds while the override does."""

    declared: QueueSettings
    override: Override | None
    overridden: QueueSettings
    pause: Pause | None
    known: bool = True

    def in_force(self, now: float) -> QueueSettings:
        """As `core.queues.in_force`, put together once and not at every step."""
        return self.declared if self.override is None or not self.override.holds(now) else self.overridden

    def info(self, name: str, now: float) -> QueueInfo:
        override = self.override if self.override is not None and self.override.holds(now) else None
        settings = self.in_force(now)
        return QueueInfo(
            name=name, declared=self.declared, override=override, settings=settings, pause=self.pause
        )


_UNKNOWN = QueueRow(_DEFAULT, None, _DEFAULT, None, known=False)


class SettingsCache:
    """Every step reads the row (others may have changed it); only a changed row is parsed."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[QueueTexts, QueueRow]] = {}
        self.pools = PoolCache()

    def read(self, connection: apsw.Connection, queue: str) -> QueueRow:
        texts = connection.execute(SQL.one, (queue,)).fetchone()
        if texts is None:
            return _UNKNOWN
        known = self._parsed.get(queue)
        if known is not None and known[0] == texts:
            return known[1]
        row = queue_row(*texts)
        self._parsed[queue] = (texts, row)
        return row


def queue_row(declared: str, override: str | None, pause: str | None) -> QueueRow:
    settings = _SETTINGS.decode(declared)
    over = None if override is None else _OVERRIDE.decode(override)
    return QueueRow(
        settings,
        over,
        settings if over is None else over.changes.over(settings),
        None if pause is None else _PAUSE.decode(pause),
    )
