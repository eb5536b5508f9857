"""What becomes of the ticks that are over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from tidemill.core.courses import Made
from tidemill.schedules.schedule import (
    HISTORY_KEPT,
    Outcome,
    Past,
    Schedule,
    in_force,
    rule_of,
    stopped,
)
from tidemill.schedules.settings import CatchUp, Settings
from tidemill.schedules.ticks import MOST_DUE, due_ticks, jitter

LATE = 60.0
"""A tick that nobody saw to within a minute was missed. A leader that dies is replaced long before."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Make = Callable[[str, float], Made]
"""A job of that id that may start at that time."""


class Decision(NamedTuple):
    schedule: Schedule
    jobs: tuple[Made, ...]
    news: tuple[Past, ...]


def decide(schedule: Schedule, now: float, *, live: bool, make: Make) -> Decision:
    """`live`: the last job it made has not ended."""
    earlier = _of_its_override(schedule, now)
    schedule = lapsed(schedule, now)
    if stopped(schedule, now):
        return Decision(schedule, (), ())
    settings = in_force(schedule, now)
    later = due_ticks(rule_of(settings, schedule.anchor), schedule.passed, now).ticks
    ticks = [*earlier, *later][-MOST_DUE:]
    wanted = _caught_up(settings.catch_up, ticks, now)
    news = list(_missed([tick for tick in ticks if tick not in wanted], now))
    jobs: list[Made] = []
    last = schedule.last
    for tick in wanted:
        if settings.overlap == "skip" and (live or jobs):
            news.append(Past(tick=tick, at=now, outcome=Outcome.OVERLAP, job=last))
            continue
        made = make(job_id(schedule.name, tick), _starts(schedule.name, settings, tick))
        jobs.append(made)
        last = made.job.id
        outcome = Outcome.FIRED if made.error is None else Outcome.FAILED
        news.append(Past(tick=tick, at=now, outcome=outcome, job=last))
    after = replace(schedule, passed=later[-1] if later else schedule.passed, last=last)
    return Decision(with_history(after, news), tuple(jobs), tuple(news))


def lapsed(schedule: Schedule, now: float) -> Schedule:
    """Without a pause or an override that is over. Ticks of a pause are not caught up; nor are those that
    another rule would have had before its time."""
    pause, override, passed = schedule.pause, schedule.override, schedule.passed
    if pause is not None and not pause.closed(now):
        passed = max(passed, pause.until or passed)
        pause = None
    if override is not None and not override.holds(now):
        if rule_of(override.changes.over(schedule.settings), 0.0) != rule_of(schedule.settings, 0.0):
            passed = max(passed, override.until or passed)
        override = None
    return replace(schedule, pause=pause, override=override, passed=passed)


def _of_its_override(schedule: Schedule, now: float) -> list[float]:
    """Ticks of an override that has ended since somebody looked, where it had another rule."""
    override = schedule.override
    if override is None or override.until is None or override.holds(now):
        return []
    rule = rule_of(override.changes.over(schedule.settings), schedule.anchor)
    if rule == rule_of(schedule.settings, schedule.anchor):
        return []
    pause = schedule.pause
    begin = schedule.passed if pause is None else max(schedule.passed, pause.until or override.until)
    return due_ticks(rule, begin, override.until).ticks


def job_id(name: str, tick: float) -> str:
    """The same whoever makes it, so that it is one job. As the moment it stands for, in UTC."""
    return f"{name}@{(_EPOCH + timedelta(seconds=tick)).isoformat().removesuffix('+00:00')}Z"


def given_way(ticks: Iterable[Past], held: Mapping[str, str]) -> tuple[Past, ...]:
    """As they are when some of their jobs were not made because others held their unique keys."""
    return tuple(
        past if (by := held.get(past.job or "")) is None else replace(past, outcome=Outcome.OVERLAP, job=by)
        for past in ticks
    )


def with_history(schedule: Schedule, news: Iterable[Past]) -> Schedule:
    return replace(schedule, history=(*schedule.history, *news)[-HISTORY_KEPT:])


def _caught_up(policy: CatchUp, ticks: Sequence[float], now: float) -> Sequence[float]:
    if policy == "all":
        return ticks
    in_time = [tick for tick in ticks if now - tick <= LATE]
    return in_time or (ticks[-1:] if policy == "once" else [])


def _missed(ticks: Sequence[float], now: float) -> Iterable[Past]:
    if ticks:
        yield Past(tick=ticks[-1], at=now, outcome=Outcome.MISSED, count=len(ticks))


def _starts(name: str, settings: Settings, tick: float) -> float:
    return tick + jitter(name, tick, settings.jitter)
