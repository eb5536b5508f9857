"""Listens to what the workers under test tell: a broken service is a bug even when nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.telemetry.events import ChoreBroke, Event, HeartbeatBroke
from tidemill.telemetry.signals import Signals


def listen(signals: Signals, on_exception: Callable[[str], None]) -> None:
    """Hears everything, so that every event is built; whatever came with a traceback is reported."""

    def hear(event: Event) -> None:
        if isinstance(event, ChoreBroke | HeartbeatBroke):
            on_exception(event.traceback)

    signals.subscribe(hear)
