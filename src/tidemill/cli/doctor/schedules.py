"""Schedules whose ticks nobody sees to, or that code no longer declares."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.cli.doctor.workers import start_one
from tidemill.cli.target import Target
from tidemill.core.courses import Course, Kind
from tidemill.inspect.views import Overview
from tidemill.inspect.words import duration, plural
from tidemill.schedules.schedule import Origin, ScheduleState, readable

LOOKED_AT = 1000
NAMED = 5
FIRED_WITHIN = 15.0
"""A worker that knows the task has fired it long before, and a leader that died is replaced by then."""


async def about_schedules(app: Tidemill, overview: Overview, target: Target) -> list[Finding]:
    agenda = await app.store.agenda(Kind.SCHEDULE, LOOKED_AT)
    disabled = await app.store.find_courses(
        Kind.SCHEDULE, name=Origin.DECLARED, states=[ScheduleState.DISABLED], limit=LOOKED_AT
    )
    due = [each.course for each in agenda.stirred]
    return [*_overdue(due, overview, target), *_disabled(disabled.courses, target)]


def _overdue(courses: list[Course], overview: Overview, target: Target) -> Iterator[Finding]:
    late = {each.id: overview.now - (each.due or overview.now) for each in courses}
    over = [each for each in courses if late[each.id] > FIRED_WITHIN]
    if not over:
        return
    tasks = sorted({kept.work.task for each in over if (kept := readable(each)) is not None})[:NAMED]
    count = (
        f"{'at least ' if len(over) == LOOKED_AT else ''}{plural(len(over), 'schedule is', 'schedules are')}"
    )
    knows = f"start a worker with the code that has {', '.join(tasks) or 'their tasks'}, or remove them"
    yield Finding(
        about="schedules",
        level="bad",
        says=f"{count} due and not fired, for up to {duration(max(late.values()))}: {_names(over)}",
        remedy=knows if overview.workers else start_one(target),
    )


def _disabled(courses: tuple[Course, ...], target: Target) -> Iterator[Finding]:
    if courses:
        yield Finding(
            about="schedules",
            level="note",
            says=f"{plural(len(courses), 'schedule is', 'schedules are')} disabled, gone from the code: "
            f"{_names(courses)}",
            remedy=f"to forget one: {target.command('schedules', 'remove', courses[0].id)}",
        )


def _names(courses: tuple[Course, ...] | list[Course]) -> str:
    named = ", ".join(each.id for each in courses[:NAMED])
    return f"{named} and {len(courses) - NAMED} more" if len(courses) > NAMED else named
