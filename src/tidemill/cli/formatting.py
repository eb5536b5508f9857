"""Formats pools, queues and schedules as text for tables and messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill.cli.output import format_time
from tidemill.contract.pools import LimitView
from tidemill.core.closures import Closure
from tidemill.core.overrides import Override
from tidemill.core.pools import LimitChanges
from tidemill.core.queues import Pause, QueueSettings, Retention
from tidemill.inspect.forecast import Forecast
from tidemill.inspect.formatting import format_duration, format_spacing, pluralize
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.views import QueueView
from tidemill.schedules.schedule import TickOutcome, TickRecord
from tidemill.schedules.settings import ScheduleSettings
from tidemill.schedules.views import ScheduleView


def format_pause(pause: Pause | None) -> str:
    if pause is None:
        return ""
    end = f"until {format_time(pause.until)}" if pause.until else "yes"
    return f"{end} ({pause.reason})" if pause.reason else end


def format_changed_settings(view: QueueView) -> str:
    """Returns the queue's settings that differ from the defaults, such as `weight=2 concurrency=5`. Ends with
    `(override)` if an operator overrode a setting."""
    defaults = QueueSettings()
    names = ("weight", "concurrency", "key_concurrency", "max_length", "crash_limit")
    given = {name: getattr(view.settings, name) for name in names}
    shown = [format_setting(name, value) for name, value in given.items() if value != getattr(defaults, name)]
    return " ".join(shown + ["(override)"] * (view.override is not None))


def format_setting(name: str, value: Any) -> str:
    """Returns a setting as text, such as `concurrency=5`. The value is written as the user would type it;
    None becomes `none`."""
    return f"{name}={_format_setting_value(name, value)}"


def _format_setting_value(name: str, value: Any) -> str:
    if isinstance(value, Retention):
        bounds = {"age": value.age and f"{value.age:g}", "count": value.count}
        return ",".join(f"{name}={bound}" for name, bound in bounds.items() if bound is not None) or "none"
    if value is None:
        return "none"
    if name in ("start", "end"):
        return format_time(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_override(override: Override[Any]) -> str:
    """Returns the override as text, such as `concurrency=2 by ann@host since …, until …: why`. The limits of
    a pool are separated by commas, because their names contain spaces."""
    separator = ", " if isinstance(override.changes, LimitChanges) else " "
    changes = separator.join(format_setting(name, value) for name, value in override.changes.given().items())
    end = f", until {format_time(override.until)}" if override.until else ""
    reason = f": {override.reason}" if override.reason else ""
    return f"{changes} by {override.by} since {format_time(override.since)}{end}{reason}"


def format_end(until: float | None, otherwise: str) -> str:
    """Returns " until <time>", or `otherwise` if `until` is None. An example of `otherwise` is " until it is
    resumed"."""
    return f" until {format_time(until)}" if until else otherwise


def format_wait(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


GAUGE_WIDTH = 10
_THOUSAND = 1000
NEVER_TEXT = "not before a person acts"


def format_pool_name(pool: PoolStatus) -> str:
    return pool.name if pool.key is None else f"{pool.name}/{pool.key}"


def format_gauge(limit: LimitView) -> str:
    """Returns a bar of ten characters that shows how much of the limit is used, such as `###-------`. Only a
    full limit shows ten `#`."""
    share = limit.used / limit.amount
    filled = min(GAUGE_WIDTH, int(share * GAUGE_WIDTH))
    if limit.used > 0:
        filled = max(filled, 1)
    return "#" * filled + "-" * (GAUGE_WIDTH - filled)


def format_used(limit: LimitView) -> str:
    return f"{format_amount(limit.used)} of {format_amount(limit.amount)}"


def format_amount(units: float) -> str:
    """Returns an amount of units as short text: `950`, `12.5k`, `20M`."""
    for size, letter in ((1_000_000, "M"), (_THOUSAND, "k")):
        if units >= size * 10:
            return f"{_round_digits(units / size, 3)}{letter}"
    return _round_digits(units, 4)


def _round_digits(number: float, digits: int) -> str:
    """Returns the number as text, rounded to `digits` significant digits. Unlike the format `g`, a large
    number such as 12340 gets no exponent."""
    return f"{float(f'{number:.{digits}g}'):.15g}"


def format_learned(pool: PoolStatus) -> str | None:
    """Returns what the provider's answers taught about the limits of a pool; None if nothing. Example:
    `requests per second: one call per 64 s, since …`."""
    parts = [
        f"{limit.name}: {format_amount(limit.learned.amount)}, since {format_time(limit.learned.since)}"
        for limit in pool.limits
        if limit.learned is not None
    ]
    parts += [
        f"{limit.name}: {format_spacing(limit.spacing.seconds)}, since {format_time(limit.spacing.since)}"
        for limit in pool.limits
        if limit.spacing is not None
    ]
    return "; ".join(parts) or None


def format_free_in(limit: LimitView) -> str:
    if limit.used <= 0:
        return "now"
    return "" if limit.free_in is None else format_duration(limit.free_in)


def format_pool_state(pool: PoolStatus, time_format: Callable[[float], str] = format_time) -> str:
    """Returns the state of a pool as text: `open`, `opening` with the open percentage during a ramp, or the
    end and the reason of each closure. `time_format` formats the end of a closure."""
    parts = []
    if pool.closed is not None:
        end = "it is opened" if pool.closed.until is None else time_format(pool.closed.until)
        why = f": {pool.closed.reason}" if pool.closed.reason else ""
        parts.append(f"closed until {end}{why} (by {pool.closed.by})")
    parts += [format_closure(closure, time_format) for closure in pool.closures]
    if not parts and pool.ramp is not None:
        parts.append(f"opening, {pool.ramp:.0%}")
    return "; ".join(parts) or "open"


def format_closure(closure: Closure, time_format: Callable[[float], str] = format_time) -> str:
    end = "it is opened" if closure.until is None else time_format(closure.until)
    return f"{closure.reason}: closed until {end}"


def format_minute(wall: float) -> str:
    """Formats a time without seconds, for narrow tables."""
    return format_time(wall)[:16]


def format_drain_time(forecast: Forecast | None) -> str:
    """Returns the time at which a backlog will be drained, as text. Empty without a forecast; `not before a
    person acts` if the backlog will never be drained."""
    if forecast is None:
        return ""
    return NEVER_TEXT if forecast.done_at is None else format_time(forecast.done_at)


def format_waiting_jobs(pool: PoolStatus) -> str | None:
    if not pool.waiting:
        return None
    done = format_drain_time(pool.forecast)
    return pluralize(pool.waiting, "job") + (f", done {done}" if done else "")


def format_schedule_rule(settings: ScheduleSettings) -> str:
    """Returns the cron expression or interval of a schedule as text, such as `0 3 * * * Asia/Shanghai` or
    `every 1 h`."""
    if settings.every is not None:
        return f"every {format_duration(settings.every)}"
    return f"{settings.cron} {settings.tz}"


def format_schedule_state(view: ScheduleView) -> str:
    """Returns the schedule's state as text, with the end and reason of a pause. `(override)` follows if an
    operator overrode a setting."""
    text = str(view.state)
    if view.pause is not None:
        text += f" until {format_time(view.pause.until)}" if view.pause.until else ""
        text += f" ({view.pause.reason})" if view.pause.reason else ""
    return f"{text} (override)" if view.override is not None else text


def format_last_tick(view: ScheduleView) -> str:
    return format_tick(view.history[-1]) if view.history else ""


def format_tick(record: TickRecord) -> str:
    """Returns a past tick with its outcome as text, such as `2026-05-01 03:00:00 UTC fired`. For missed ticks
    it gives their number, such as `3 missed`."""
    return f"{format_time(record.tick)} {format_tick_outcome(record)}"


def format_tick_outcome(record: TickRecord) -> str:
    return f"{record.count} missed" if record.outcome is TickOutcome.MISSED else str(record.outcome)
