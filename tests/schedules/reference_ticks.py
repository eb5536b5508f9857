"""Reference ticks, found minute by minute: slow, and too simple to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

MINUTE = timedelta(minutes=1)
BEGIN, END = datetime(2025, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
Matches = Callable[[datetime], bool]


def _month_ends(day: datetime) -> bool:
    return (day + timedelta(days=1)).month != day.month


EXPRESSIONS: dict[str, Matches] = {
    "0 3 * * *": lambda t: (t.hour, t.minute) == (3, 0),
    "30 2 * * *": lambda t: (t.hour, t.minute) == (2, 30),
    "0 0 * * 1": lambda t: (t.weekday(), t.hour, t.minute) == (0, 0, 0),
    "59 23 L * *": lambda t: (t.hour, t.minute) == (23, 59) and _month_ends(t),
    "*/15 * * * *": lambda t: t.minute % 15 == 0,
    "20 * * * *": lambda t: t.minute == 20,
    "*/20 1-3 * * *": lambda t: t.minute % 20 == 0 and 1 <= t.hour <= 3,
}
NAMES_TIMES = ("0 3 * * *", "30 2 * * *", "0 0 * * 1", "59 23 L * *")


def changes(zone: str) -> list[datetime]:
    """Returns the clock changes of a zone, to the minute."""
    place, found = ZoneInfo(zone), []
    before = BEGIN
    while before < END:
        after = before + timedelta(days=1)
        if before.astimezone(place).utcoffset() != after.astimezone(place).utcoffset():
            moment = before
            while moment.astimezone(place).utcoffset() == before.astimezone(place).utcoffset():
                moment += MINUTE
            found.append(moment)
        before = after
    return found


def every_zone() -> list[str]:
    return sorted(zone for zone in available_timezones() if not zone.startswith(("Etc/", "posix", "right")))


def with_changes() -> list[str]:
    """Returns one zone of each group that changes its clocks at the same times by the same amounts."""
    seen: dict[tuple[object, ...], str] = {}
    for zone in every_zone():
        place = ZoneInfo(zone)
        key = tuple((change, change.astimezone(place).utcoffset()) for change in changes(zone))
        if key:
            seen.setdefault(key, zone)
    return list(seen.values())


def expected(expression: str, zone: str, begin: datetime, end: datetime) -> list[float]:
    """Returns matching local times later than `begin` up to `end`.

    For a fixed time that occurs twice it returns the first, and for a skipped time the moment of the
    change."""
    return [moment.timestamp() for moment in _expected(expression, ZoneInfo(zone), begin, end)]


def _expected(expression: str, place: ZoneInfo, begin: datetime, end: datetime) -> Iterator[datetime]:
    matches, fixed = EXPRESSIONS[expression], expression in NAMES_TIMES
    moment = begin
    while moment < end:
        local = moment.astimezone(place)
        moment += MINUTE
        here = moment.astimezone(place)
        if (matches(here) and not (fixed and here.fold) and not here.second) or (
            fixed and any(matches(skipped) for skipped in _skipped(local, here))
        ):
            yield moment


def _skipped(local: datetime, here: datetime) -> Iterator[datetime]:
    missing = local.replace(tzinfo=None) + MINUTE
    while missing < here.replace(tzinfo=None):
        yield missing
        missing += MINUTE
