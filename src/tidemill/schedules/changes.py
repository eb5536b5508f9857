"""What people and code do to a schedule. Every function takes it as it is and returns it as it becomes."""

from __future__ import annotations

from msgspec import UnsetType
from msgspec.structs import replace

from tidemill.core.queues import Pause
from tidemill.errors import ConfigurationError, ScheduleNotFound
from tidemill.schedules.deciding import with_history
from tidemill.schedules.schedule import Origin, Outcome, Past, Schedule, Wanted, in_force, rule_of
from tidemill.schedules.settings import ScheduleChanges, ScheduleOverride, overridden, without


def put(before: Schedule | None, name: str, wanted: Wanted, origin: Origin, now: float) -> Schedule:
    """Made, or made anew. A pause, an override and the history stay. Another rule begins now, and so does one
    that comes back."""
    work, settings = wanted
    if before is None or before.removed:
        return Schedule(name=name, work=work, settings=settings, origin=origin, anchor=now, passed=now)
    if origin is Origin.DYNAMIC and before.origin is Origin.DECLARED and not before.disabled:
        raise ConfigurationError("code declares it; change it there, or override it")
    after = replace(before, work=work, settings=settings, origin=origin, disabled=False)
    return replace(after, passed=max(before.passed, now)) if _begins_anew(before, after, now) else after


def pause(before: Schedule, now: float, until: float | None, reason: str | None) -> Schedule:
    mark = Pause(now, until, reason)
    if problem := mark.problem():
        raise ConfigurationError(problem)
    return replace(before, pause=mark)


def resume(before: Schedule, now: float) -> Schedule:
    """Ticks of the pause are not caught up."""
    return before if before.pause is None else replace(before, pause=None, passed=max(before.passed, now))


def override(
    before: Schedule,
    now: float,
    changes: ScheduleChanges,
    *,
    by: str,
    reason: str | None,
    until: float | UnsetType | None,
) -> Schedule:
    held = overridden(before.override, now, changes, by, reason, until)
    if problem := held.problem(before.settings):
        raise ConfigurationError(problem)
    return _with_override(before, held, now)


def clear_override(before: Schedule, now: float, names: tuple[str, ...]) -> Schedule:
    left = without(before.override, names)
    if left is not None and (problem := left.problem(before.settings)):
        raise ConfigurationError(problem)
    return _with_override(before, left, now)


def disable(before: Schedule) -> Schedule:
    return replace(before, disabled=True)


def remove(before: Schedule) -> Schedule:
    """Nothing of it is left but its name."""
    return replace(before, removed=True, pause=None, override=None, disabled=False, last=None, history=())


def run(before: Schedule, now: float, job: str) -> Schedule:
    return with_history(replace(before, last=job), [Past(tick=now, at=now, outcome=Outcome.RUN, job=job)])


def require(name: str, before: Schedule | None) -> Schedule:
    if before is None or before.removed:
        raise not_found(name)
    return before


def not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"there is no schedule {name!r}; `tidemill schedules` lists those there are, and a worker "
        "writes those that code declares when it starts"
    )


def _with_override(before: Schedule, held: ScheduleOverride | None, now: float) -> Schedule:
    after = replace(before, override=held)
    return replace(after, passed=max(before.passed, now)) if _begins_anew(before, after, now) else after


def _begins_anew(before: Schedule, after: Schedule, now: float) -> bool:
    """Ticks that another rule would have had before are not caught up."""
    old, new = in_force(before, now), in_force(after, now)
    return before.disabled or rule_of(old, before.anchor) != rule_of(new, after.anchor)
