"""`tidemill schedules`: lists, shows, pauses, resumes, runs, sets, unsets and removes schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import completion
from tidemill.cli import options as cli_options
from tidemill.cli.formatting import (
    format_end,
    format_last_tick,
    format_override,
    format_schedule_rule,
    format_schedule_state,
    format_tick_outcome,
)
from tidemill.cli.options import WholeNumber
from tidemill.cli.output import echo, format_time, note, print_fields, print_json
from tidemill.cli.overrides import (
    EndOption,
    OverrideOptions,
    parse_assignments,
    refuse_unknown_settings,
    report_set,
    report_unset,
    with_end,
    with_override_options,
)
from tidemill.cli.root import CommandGroup
from tidemill.cli.store_options import CommandTarget, Redaction, with_secrets, with_target
from tidemill.cli.terminal import Column, print_table
from tidemill.inspect.formatting import format_duration
from tidemill.schedules.changes import schedule_not_found
from tidemill.schedules.schedule import VISIBLE_STATES, ScheduleOrigin
from tidemill.schedules.views import SchedulePage, ScheduleView

_STATES = [state.value for state in VISIBLE_STATES]
_ORIGINS = [origin.value for origin in ScheduleOrigin]

SCHEDULE_COLUMNS = (
    Column("schedule", truncate="end", min_width=8),
    Column("task", drop_order=3, truncate="start"),
    Column("ticks"),
    Column("next", drop_order=1),
    Column("last", drop_order=2),
    Column("origin", drop_order=4),
    Column("state", truncate="end", min_width=8),
)


NO_SCHEDULES_TEXT = "there are no schedules yet; a worker stores the declared ones when it starts"


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    help="Only schedules in this state; may be repeated.",
)
@click.option(
    "--origin", type=click.Choice(_ORIGINS), help="Only schedules declared in code, or created by calls."
)
@click.option(
    "--limit", type=WholeNumber(1, 1000), default=100, show_default=True, help="Maximum number of schedules."
)
@click.option("--cursor", metavar="CURSOR", help="Show the next page; the previous page printed this value.")
@with_target
@with_secrets
def schedules(
    target: CommandTarget,
    *,
    redaction: Redaction,
    states: tuple[str, ...],
    origin: str | None,
    limit: int,
    cursor: str | None,
) -> None:
    """Show the schedules, newest first; or show, pause, run, set or remove one."""
    subcommand = click.get_current_context().invoked_subcommand
    if subcommand is not None:
        if states or origin or cursor:
            raise click.UsageError(
                f"schedules {subcommand} is about one schedule: give its name, and no filter"
            )
        return

    async def load(app: Tidemill) -> SchedulePage:
        found = await app.schedules.list(
            states=states or VISIBLE_STATES, origin=origin, limit=limit, cursor=cursor
        )
        return SchedulePage(tuple(redaction.schedule(app, view) for view in found.schedules), found.cursor)

    page = target.run(load)
    if target.json:
        print_json(page)
        return
    if not page.schedules:
        note("no schedule matches" if states or origin else NO_SCHEDULES_TEXT)
        return
    print_table(SCHEDULE_COLUMNS, [_schedule_row(view) for view in page.schedules])
    if page.cursor is not None:
        note(f"there are more: --cursor {page.cursor!r}")


def _schedule_row(view: ScheduleView) -> tuple[object, ...]:
    following = format_time(view.next[0]) if view.next else ""
    return (
        view.name,
        view.task,
        format_schedule_rule(view.settings),
        following,
        format_last_tick(view),
        view.origin,
        format_schedule_state(view),
    )


@click.command()
@click.argument("name", shell_complete=completion.complete_schedules)
@with_target
@with_secrets
def info(target: CommandTarget, name: str, *, redaction: Redaction) -> None:
    """Show one schedule with its next and past ticks."""

    async def load(app: Tidemill) -> ScheduleView:
        return redaction.schedule(app, await app.schedules.get(name))

    view = target.run(load)
    if target.json:
        print_json(view)
        return
    print_fields(_schedule_fields(view))
    for past in reversed(view.history):
        job = f" {past.job}" if past.job else ""
        echo(f"  {format_time(past.tick)} {format_tick_outcome(past)}{job}")


def _schedule_fields(view: ScheduleView) -> dict[str, object]:
    settings = view.settings
    return {
        "schedule": view.name,
        "state": format_schedule_state(view),
        "ticks": format_schedule_rule(settings),
        "declared": format_schedule_rule(view.declared) if view.override is not None else None,
        "override": format_override(view.override) if view.override is not None else None,
        "task": view.task,
        "arguments": bytes(view.arguments).decode(),
        "start": format_time(settings.start) or None,
        "end": format_time(settings.end) or None,
        "catch-up": settings.catch_up,
        "overlap": settings.overlap,
        "jitter": format_duration(settings.jitter) if settings.jitter else None,
        "made": f"{format_time(view.created)}, {view.origin}",
        "next": ", ".join(format_time(tick) for tick in view.next) or "none",
        "history": "none yet" if not view.history else "newest first",
    }


@click.command()
@click.argument("name", shell_complete=completion.complete_schedules)
@with_end
@click.option("--reason", help="Why; shown wherever the pause is shown.")
@with_target
def pause(target: CommandTarget, name: str, *, end_option: EndOption, reason: str | None) -> None:
    """Pause a schedule. Ticks during the pause create no jobs and are not caught up."""

    async def apply(app: Tidemill) -> ScheduleView:
        paused = await app.schedules.pause(name, until=await end_option.resolve(app), reason=reason)
        return Redaction().schedule(app, paused)

    view = target.run(apply)
    if target.json:
        print_json(view)
        return
    end = None if view.pause is None else view.pause.until
    echo(f"{name} is paused{format_end(end, ' until it is resumed')}")


@click.command()
@click.argument("name", shell_complete=completion.complete_schedules)
@with_target
def resume(target: CommandTarget, name: str) -> None:
    """End the pause of a schedule."""

    async def apply(app: Tidemill) -> ScheduleView:
        return Redaction().schedule(app, await app.schedules.resume(name))

    view = target.run(apply)
    if target.json:
        print_json(view)
    else:
        echo(f"{name} is {view.state}, {_format_coming(view)}")


@click.command()
@click.argument("name", shell_complete=completion.complete_schedules)
@with_target
def run(target: CommandTarget, name: str) -> None:
    """Create a job of the schedule now. The ticks stay as they are."""

    async def create(app: Tidemill) -> tuple[str, bool]:
        job = await app.schedules.run_now(name)
        return job.id, bool(job.existing)

    job, existing = target.run(create)
    if existing:
        note("its last job has not ended: no new job was created")
    if target.json:
        print_json({"schedule": name, "job": job, "existing": existing})
    else:
        echo(job)


@click.command("set")
@click.argument("name", shell_complete=completion.complete_schedules)
@click.argument("words", metavar="[SETTING=VALUE]...", nargs=-1)
@click.option(
    "--next-at",
    callback=cli_options.parse_time,
    metavar="TIME",
    help="Move the next tick of an interval to this time: 2026-05-01T08:00.",
)
@with_override_options
@with_target
def set_(
    target: CommandTarget,
    name: str,
    *,
    words: tuple[str, ...],
    next_at: float | None,
    override_options: OverrideOptions,
) -> None:
    """Override settings of a schedule until they are unset, or move its next tick.

    The override applies at once and survives deploys. Examples: cron='0 4 * * *' tz=Asia/Shanghai every=30m
    jitter=5m start=2026-05-01T08:00 end=none catch_up=skip overlap=allow."""
    if next_at is not None:
        _move_next_tick(target, name, next_at, words=words, override_options=override_options)
        return
    options = _parse_options(words)

    async def apply(app: Tidemill) -> ScheduleView:
        changed = await app.schedules.override(name, **await override_options.arguments(app), **options)
        return Redaction().schedule(app, changed)

    report_set(target, name, target.run(apply))


def _move_next_tick(
    target: CommandTarget,
    name: str,
    next_at: float,
    *,
    words: tuple[str, ...],
    override_options: OverrideOptions,
) -> None:
    if words or override_options.is_given():
        raise click.UsageError(
            "--next-at moves one tick and stores no override: give it alone, or override every=… start=TIME"
        )

    async def move(app: Tidemill) -> ScheduleView:
        return Redaction().schedule(app, await app.schedules.move(name, next_at))

    view = target.run(move)
    if target.json:
        print_json(view)
    else:
        echo(f"{name}: {_format_coming(view)}")


def _format_coming(view: ScheduleView) -> str:
    return f"next at {format_time(view.next[0])}" if view.next else "no tick is left"


def _parse_options(words: tuple[str, ...]) -> Any:
    given = parse_assignments(words, SETTING_READERS, of="schedules", example="cron='0 4 * * *'")
    return {name: SETTING_READERS[name](name, text) for name, text in given}


def _read_duration(name: str, text: str) -> float:
    return _read_value(cli_options.parse_duration_option, name, text)


def _read_time(name: str, text: str) -> float | None:
    return None if text.lower() == "none" else _read_value(cli_options.parse_time, name, text)


def _read_value(callback: Callable[..., float | None], name: str, text: str) -> float:
    try:
        value = callback(click.get_current_context(), None, text)
    except click.BadParameter as error:
        raise click.UsageError(f"{name}: {error.message}") from None
    return value or 0.0


def _read_text(_: str, text: str) -> str:
    return text


SETTING_READERS: dict[str, Callable[[str, str], Any]] = {
    "cron": _read_text,
    "tz": _read_text,
    "every": _read_duration,
    "start": _read_time,
    "end": _read_time,
    "catch_up": _read_text,
    "overlap": _read_text,
    "jitter": _read_duration,
}


@click.command()
@click.argument("name", shell_complete=completion.complete_schedules)
@click.argument("settings", nargs=-1, metavar="[SETTING]...")
@with_target
def unset(target: CommandTarget, name: str, settings: tuple[str, ...]) -> int:
    """Remove the override of the named settings, or of all settings."""
    refuse_unknown_settings(settings, SETTING_READERS, of="schedules")

    async def clear(app: Tidemill) -> tuple[ScheduleView, ScheduleView]:
        before = await app.schedules.get(name)
        after = await app.schedules.clear_override(name, *settings)
        return before, Redaction().schedule(app, after)

    before, after = target.run(clear)
    declared_text = f": {format_schedule_rule(after.settings)}"
    return report_unset(
        target, "schedule", name, settings=settings, before=before, after=after, declared_text=declared_text
    )


@click.command()
@click.argument("name", shell_complete=completion.complete_schedules)
@with_target
def remove(target: CommandTarget, name: str) -> None:
    """Remove a schedule; its jobs stay. If code declares it, the next worker start restores it."""
    if not target.run(lambda app: app.schedules.remove(name)):
        raise schedule_not_found(name)
    if target.json:
        print_json({"schedule": name, "removed": True})
    else:
        echo(f"{name} is removed")


for _command in (info, pause, resume, run, set_, unset, remove):
    schedules.add_command(_command)
