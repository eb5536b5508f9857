"""Settings and pauses of a queue as people read them."""

from __future__ import annotations

import getpass
import socket
from typing import Any

from tidemill.cli.output import moment
from tidemill.core.queues import Override, Pause, QueueSettings, Retention
from tidemill.inspect.views import QueueView
from tidemill.inspect.words import duration


def who() -> str:
    """Whoever sits at the terminal, as an override remembers them."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"  # a container may run as a number without a name
    return f"{name}@{socket.gethostname()}"


def paused(pause: Pause | None) -> str:
    if pause is None:
        return ""
    end = f"until {moment(pause.until)}" if pause.until else "yes"
    return f"{end} ({pause.reason})" if pause.reason else end


def unusual(view: QueueView) -> str:
    """What differs from a queue nobody ever set anything on."""
    plain = QueueSettings()
    names = ("weight", "concurrency", "key_concurrency", "max_length", "crash_limit")
    given = {name: getattr(view.settings, name) for name in names}
    shown = [setting(name, value) for name, value in given.items() if value != getattr(plain, name)]
    return " ".join(shown + ["(override)"] * (view.override is not None))


def setting(name: str, value: Any) -> str:
    return f"{name}={written(value)}"


def written(value: Any) -> str:
    """As it would be typed."""
    if isinstance(value, Retention):
        bounds = {"age": value.age and f"{value.age:g}", "count": value.count}
        return ",".join(f"{name}={bound}" for name, bound in bounds.items() if bound is not None) or "none"
    return "none" if value is None else str(value)


def overridden(override: Override) -> str:
    """`concurrency=2 by ann@host since …, until …: why`."""
    changes = " ".join(setting(name, value) for name, value in override.changes.given().items())
    end = f", until {moment(override.until)}" if override.until else ""
    why = f": {override.reason}" if override.reason else ""
    return f"{changes} by {override.by} since {moment(override.since)}{end}{why}"


def waited(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)
