"""What holds for a queue, read from its row and kept until the row changes."""

from __future__ import annotations

import apsw
import msgspec

from tidemill.contract.queues import QueueInfo
from tidemill.core.queues import Pause, QueueSettings
from tidemill.stores.sqlite.statements import load

SQL = load("queues")
_SETTINGS = msgspec.json.Decoder(QueueSettings)
_PAUSE = msgspec.json.Decoder(Pause)
_DEFAULT = QueueSettings()

QueueTexts = tuple[str, str | None, str | None]


class QueueRow(msgspec.Struct, frozen=True):
    settings: QueueSettings
    pause: Pause | None
    known: bool = True


_UNKNOWN = QueueRow(_DEFAULT, None, known=False)


class SettingsCache:
    """Every step reads the row (others may have changed it); only a changed row is parsed."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[QueueTexts, QueueRow]] = {}

    def read(self, connection: apsw.Connection, queue: str) -> QueueRow:
        texts = connection.execute(SQL.one, (queue,)).fetchone()
        if texts is None:
            return _UNKNOWN
        known = self._parsed.get(queue)
        if known is not None and known[0] == texts:
            return known[1]
        info = queue_info(queue, *texts)
        row = QueueRow(info.settings, info.pause)
        self._parsed[queue] = (texts, row)
        return row


def queue_info(name: str, declared: str, override: str | None, pause: str | None) -> QueueInfo:
    return QueueInfo(
        name=name,
        declared=_SETTINGS.decode(declared),
        override=None if override is None else _SETTINGS.decode(override),
        pause=None if pause is None else _PAUSE.decode(pause),
    )
