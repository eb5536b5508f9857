"""`tidemill queues`: what they hold, what is set on them, pause and resume."""

from __future__ import annotations

from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import times
from tidemill.cli.output import moment, print_json, print_table
from tidemill.cli.target import Target, with_target
from tidemill.contract.queues import QueueInfo
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State


@click.group(invoke_without_command=True)
@with_target
def queues(target: Target) -> None:
    """Show the queues; or pause and resume one."""
    if click.get_current_context().invoked_subcommand is not None:
        return

    async def look(app: Tidemill) -> tuple[list[QueueInfo], dict[str, dict[State, int]], float]:
        return await app.store.queues(), await app.store.counts(), (await app.store.read_clock()).wall

    found, counts, now = target.run(look)
    if target.json:
        print_json([_as_data(info, counts.get(info.name, {})) for info in found])
        return
    print_table(
        ("queue", *(state.value for state in State), "paused", "settings"),
        [
            (
                info.name,
                *(counts.get(info.name, {}).get(state, 0) for state in State),
                _pause(info, now),
                _settings(info),
            )
            for info in found
        ],
    )


@queues.command()
@click.argument("name")
@click.option("--until", callback=times.moment, help="When it ends by itself: 2026-05-01T08:00.")
@click.option("--for", "lasting", callback=times.duration, help="How long it lasts: 90s, 10m, 1h30m, 2d.")
@click.option("--reason", help="Shown to whoever wonders.")
@with_target
def pause(
    target: Target, name: str, *, until: float | None, lasting: float | None, reason: str | None
) -> None:
    """Start nothing new of a queue; running jobs go on."""
    if until is not None and lasting is not None:
        raise click.UsageError("give either --until or --for, not both")

    async def close(app: Tidemill) -> float | None:
        await _require_known(app, name)
        now = (await app.store.read_clock()).wall
        if until is not None and until <= now:
            raise click.UsageError(f"--until {moment(until)} is in the past")
        end = until if lasting is None else now + lasting
        await app.pause(name, until=end, reason=reason)
        return end

    end = target.run(close)
    if target.json:
        print_json({"queue": name, "paused": True, "until": end, "reason": reason})
    else:
        click.echo(f"{name} is paused" + (f" until {moment(end)}" if end else " until it is resumed"))


@queues.command()
@click.argument("name")
@with_target
def resume(target: Target, name: str) -> None:
    """End a pause."""

    async def reopen(app: Tidemill) -> None:
        await _require_known(app, name)
        await app.resume(name)

    target.run(reopen)
    if target.json:
        print_json({"queue": name, "paused": False})
    else:
        click.echo(f"{name} is open")


async def _require_known(app: Tidemill, name: str) -> None:
    """A mistyped name must not make a queue that nobody meant."""
    known = [info.name for info in await app.store.queues()]
    if name not in known:
        raise click.ClickException(f"there is no queue {name!r}; there are {', '.join(known) or 'none yet'}")


def _as_data(info: QueueInfo, counts: dict[State, int]) -> dict[str, Any]:
    return {
        "name": info.name,
        "counts": {state.value: counts.get(state, 0) for state in State},
        "pause": info.pause,
        "settings": info.settings,
        "declared": info.declared,
        "override": info.override,
    }


def _pause(info: QueueInfo, now: float) -> str:
    if info.pause is None or not info.pause.closed(now):
        return ""
    end = f"until {moment(info.pause.until)}" if info.pause.until else "yes"
    return f"{end} ({info.pause.reason})" if info.pause.reason else end


def _settings(info: QueueInfo) -> str:
    """What differs from a queue nobody ever set anything on."""
    plain = QueueSettings()
    names = ("weight", "concurrency", "key_concurrency", "max_length", "crash_limit")
    given = [
        f"{name}={getattr(info.settings, name)}"
        for name in names
        if getattr(info.settings, name) != getattr(plain, name)
    ]
    return " ".join(given + ["(override)"] * (info.override is not None))
