"""Caches the parsed settings of queues and pools until their rows change."""

from __future__ import annotations

import apsw
import msgspec

from tidemill.contract.queues import QueueInfo, make_queue_info
from tidemill.core.overrides import Override
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import Pause, QueueChanges, QueueSettings
from tidemill.stores.sqlite.statements import load_statements

SQL = load_statements("queues")
POOLS = load_statements("pools")
_SETTINGS = msgspec.json.Decoder(QueueSettings)
_OVERRIDE = msgspec.json.Decoder(Override[QueueChanges])
_PAUSE = msgspec.json.Decoder(Pause)
_POOL_SETTINGS = msgspec.json.Decoder(PoolSettings)
_POOL_OVERRIDE = msgspec.json.Decoder(Override[LimitChanges])
_DEFAULT = QueueSettings()

QueueTexts = tuple[str, str | None, str | None]


class CachedQueueRow(msgspec.Struct, frozen=True):
    """The parsed row of a queue. `overridden`: the declared settings with the override applied. `known`:
    False if the queue has no row and so has default settings."""

    declared: QueueSettings
    override: Override[QueueChanges] | None
    overridden: QueueSettings
    pause: Pause | None
    known: bool = True

    def in_force(self, now: float) -> QueueSettings:
        """Returns the settings that apply at the wall time `now`, by the rule of
        `core.queues.queue_settings_in_force`."""
        return self.declared if self.override is None or not self.override.holds(now) else self.overridden

    def info(self, name: str, now: float) -> QueueInfo:
        return make_queue_info(name, self.declared, self.override, self.pause, now)


_UNKNOWN = CachedQueueRow(_DEFAULT, None, _DEFAULT, None, known=False)


class PoolRow(msgspec.Struct, frozen=True):
    declared: PoolSettings
    override: Override[LimitChanges] | None
    overridden: PoolSettings

    def in_force(self, now: float) -> PoolSettings:
        return self.declared if self.override is None or not self.override.holds(now) else self.overridden


class PoolCache:
    """The parsed rows of pools. `read` always reads the row from the database, and parses it only if its text
    has changed."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[tuple[str, str | None], PoolRow]] = {}

    def read(self, connection: apsw.Connection, pool: str) -> PoolRow | None:
        texts = connection.execute(POOLS.by_name, (pool,)).fetchone()
        if texts is None:
            return None
        known = self._parsed.get(pool)
        if known is None or known[0] != texts:
            known = self._parsed[pool] = (texts, pool_row(*texts))
        return known[1]


def pool_row(declared: str, override: str | None) -> PoolRow:
    settings = _POOL_SETTINGS.decode(declared)
    parsed_override = None if override is None else _POOL_OVERRIDE.decode(override)
    return PoolRow(
        settings,
        parsed_override,
        settings if parsed_override is None else parsed_override.changes.over(settings),
    )


class SettingsCache:
    """The parsed rows of queues and pools. `read` always reads the row from the database, and parses it only
    if its text has changed."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[QueueTexts, CachedQueueRow]] = {}
        self.pools = PoolCache()

    def read(self, connection: apsw.Connection, queue: str) -> CachedQueueRow:
        texts = connection.execute(SQL.by_name, (queue,)).fetchone()
        if texts is None:
            return _UNKNOWN
        known = self._parsed.get(queue)
        if known is not None and known[0] == texts:
            return known[1]
        row = queue_row(*texts)
        self._parsed[queue] = (texts, row)
        return row


def queue_row(declared: str, override: str | None, pause: str | None) -> CachedQueueRow:
    settings = _SETTINGS.decode(declared)
    parsed_override = None if override is None else _OVERRIDE.decode(override)
    return CachedQueueRow(
        settings,
        parsed_override,
        settings if parsed_override is None else parsed_override.changes.over(settings),
        None if pause is None else _PAUSE.decode(pause),
    )
