"""`tidemill queues`: lists, shows, pauses, resumes, sets, unsets and empties queues."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.cli import completion, terminal
from tidemill.cli.formatting import (
    format_changed_settings,
    format_drain_time,
    format_end,
    format_override,
    format_pause,
    format_setting,
    format_wait,
)
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
from tidemill.cli.store_options import CommandTarget, with_target
from tidemill.cli.terminal import Column, count_progress, print_table
from tidemill.core.states import State
from tidemill.inspect.formatting import pluralize
from tidemill.inspect.views import QueueView
from tidemill.settings.catalogue import queue_catalogue

_DROP_ORDER = {State.CANCELLED: 7, State.DONE: 6, State.WAITING: 5, State.SCHEDULED: 3}

QUEUE_COLUMNS = (
    Column("queue"),
    *(Column(state, drop_order=_DROP_ORDER.get(state, 0), right=True) for state in State),
    Column("oldest", drop_order=2),
    Column("paused", drop_order=1, truncate="end"),
    Column("settings", drop_order=4, truncate="end"),
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@with_target
def queues(target: CommandTarget) -> None:
    """Show the queues; or show, pause, set or empty one."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = target.run(lambda app: app.inspect.queues())
    if target.json:
        print_json(found)
        return
    print_table(
        QUEUE_COLUMNS,
        [
            (
                view.name,
                *(view.counts[state] for state in State),
                format_wait(view.latency),
                format_pause(view.pause),
                format_changed_settings(view),
            )
            for view in found
        ],
    )


@click.command()
@click.argument("name", shell_complete=completion.complete_queues)
@with_target
def info(target: CommandTarget, name: str) -> None:
    """Show one queue: its jobs, counters and settings."""
    view = target.run(lambda app: app.inspect.queue(name))
    if target.json:
        print_json(view)
    else:
        print_fields(_queue_fields(view, target))


def _queue_fields(view: QueueView, target: CommandTarget) -> dict[str, object]:
    counts = ", ".join(f"{count} {state}" for state, count in view.counts.items() if count)
    settings = msgspec.structs.asdict(view.settings)
    return {
        "queue": view.name,
        "jobs": counts or "none",
        "retrying": view.retrying or None,
        "oldest ready": format_wait(view.latency) or None,
        "drained": format_drain_time(view.forecast) or None,
        "next due": format_time(view.next_due) or None,
        "last ended": format_time(view.last_ended) or None,
        "last 24 h": f"{view.processed} processed, {view.failed} of them failed, {view.cancelled} cancelled, "
        f"{view.retried} attempts retried, {view.reclaimed} reclaimed",
        "paused": format_pause(view.pause) or None,
        "settings": " ".join(format_setting(name, value) for name, value in settings.items()),
        "override": format_override(view.override) if view.override else None,
        "workers": ", ".join(view.workers) or f"none: {target.worker_command()} starts one",
    }


@click.command()
@click.argument("name", shell_complete=completion.complete_queues)
@with_end
@click.option("--reason", help="Why; shown wherever the pause is shown.")
@with_target
def pause(target: CommandTarget, name: str, *, end_option: EndOption, reason: str | None) -> None:
    """Pause a queue: no new job starts. Running jobs continue."""

    async def apply(app: Tidemill) -> float | None:
        end = await end_option.resolve(app)
        await app.inspect.pause(name, until=end, reason=reason)
        return end

    end = target.run(apply)
    if target.json:
        print_json({"queue": name, "paused": True, "until": end, "reason": reason})
    else:
        echo(f"{name} is paused{format_end(end, ' until it is resumed')}")


@click.command()
@click.argument("name", shell_complete=completion.complete_queues)
@with_target
def resume(target: CommandTarget, name: str) -> None:
    """End the pause of a queue."""
    target.run(lambda app: app.inspect.resume(name))
    if target.json:
        print_json({"queue": name, "paused": False})
    else:
        echo(f"{name} is open")


@click.command("set")
@click.argument("name", shell_complete=completion.complete_queues)
@click.argument("words", metavar="SETTING=VALUE...", nargs=-1, required=True)
@with_override_options
@with_target
def set_(
    target: CommandTarget, name: str, *, words: tuple[str, ...], override_options: OverrideOptions
) -> None:
    """Override settings of a queue until they are unset.

    The override applies at once on every worker and survives deploys. Examples: concurrency=5 weight=2
    max_length=none key_concurrency=1 crash_limit=3 keep_done=age=86400,count=1000 (and keep_failed,
    keep_cancelled)."""
    changes = _parse_changes(name, words)

    async def apply(app: Tidemill) -> QueueView:
        return await app.inspect.override(name, **await override_options.arguments(app), **changes)

    queue = target.run(apply)
    report_set(target, name, queue, queue.override)


def _parse_changes(queue: str, words: tuple[str, ...]) -> Any:
    known = queue_catalogue(queue)
    given = parse_assignments(words, known, of="queues", example="concurrency=5")
    return {name: _parse_setting(known[name].kind, name, text) for name, text in given}


def _parse_setting(kind: Any, name: str, text: str) -> Any:
    """Returns the value of the setting `name`, parsed from `text`. The text `none` removes the limit of an
    optional setting. `kind` is the setting's type."""
    try:
        return kind.read(None) if text.lower() == "none" else kind.read_text(text)
    except ValueError:
        raise click.UsageError(f"{name}: must be {kind.as_text}{_none_hint(kind)}, is {text!r}") from None


def _none_hint(kind: Any) -> str:
    try:
        kind.read(None)
    except ValueError:
        return ""
    return ", or none for no limit"


@click.command()
@click.argument("name", shell_complete=completion.complete_queues)
@click.argument("settings", nargs=-1, metavar="[SETTING]...")
@with_target
def unset(target: CommandTarget, name: str, settings: tuple[str, ...]) -> int:
    """Remove the override of the named settings, or of all settings."""
    refuse_unknown_settings(settings, queue_catalogue(name), of="queues")

    async def clear(app: Tidemill) -> tuple[QueueView, QueueView]:
        before = await app.inspect.queue(name)
        return before, await app.inspect.clear_override(name, *settings)

    before, after = target.run(clear)
    declared_text = f" {format_changed_settings(after)}".rstrip()
    return report_unset(
        target,
        "queue",
        name,
        settings=settings,
        view=after,
        before=before.override,
        after=after.override,
        declared_text=declared_text,
    )


@click.command()
@click.argument("name", shell_complete=completion.complete_queues)
@click.option("--confirm", metavar="NAME", help="The queue's name, to skip the confirmation prompt.")
@with_target
def empty(target: CommandTarget, name: str, confirm: str | None) -> int:
    """Delete all jobs of a queue, also finished ones. Running jobs stay."""
    view = target.run(lambda app: app.inspect.queue(name))
    deletable = sum(count for state, count in view.counts.items() if state is not State.RUNNING)
    if not deletable:
        note(f"nothing to delete: queue {name!r} holds no job that does not run")
        if target.json:
            print_json({"queue": name, "deleted": 0})
        return 1
    typed = confirm if confirm is not None else _prompt_name(name, deletable)
    if typed != name:
        raise click.UsageError(f"{typed!r} is not the name of the queue, {name!r}: nothing was deleted")
    with count_progress("deleted", deletable) as progress:
        deleted = target.run(lambda app: app.inspect.empty(name, confirm=typed, progress=progress))
    if target.json:
        print_json({"queue": name, "deleted": deleted})
    else:
        echo(f"{pluralize(deleted, 'job')} deleted")
    return 0


def _prompt_name(name: str, deletable: int) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{pluralize(deletable, 'job')} would be deleted, but there is no terminal to ask on: "
            f"add --confirm {name}"
        )
    return terminal.prompt(f"{pluralize(deletable, 'job')} of {name} will be deleted; type its name to go on")


for _command in (info, pause, resume, set_, unset, empty):
    queues.add_command(_command)
