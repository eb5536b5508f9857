"""The options that say which jobs are meant: the same wherever jobs are found or changed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import click

from tidemill.app import Tidemill
from tidemill.cli import complete, times
from tidemill.cli.times import Instant
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.inspect.queue_views import require


@dataclass(frozen=True)
class Wanted:
    """What was typed. Times may be relative, so it becomes a filter when the store's clock is read."""

    queue: str | None
    states: tuple[State, ...]
    task: str | None
    key: str | None
    tag: str | None
    flow: str | None
    text: str | None
    fields: tuple[tuple[str, str], ...]
    since: Instant | None
    until: Instant | None
    time: Literal["created", "due", "finished"]

    def says_something(self) -> bool:
        """What the times are about says nothing without one: it must never mean every job."""
        return replace(self, time=NOTHING.time) != NOTHING

    async def filter(self, app: Tidemill, states: tuple[State, ...] | None = None) -> Filter:
        """`states` are meant where none were typed. A queue nobody knows is a mistake, not an empty one."""
        if self.queue is not None and all(task.queue != self.queue for task in app.tasks.values()):
            await require(app.store, self.queue)
        now = (await app.store.read_clock()).wall
        return Filter(
            queue=self.queue,
            states=self.states or states,
            task=self.task,
            key=self.key,
            tag=self.tag,
            flow=self.flow,
            text=self.text,
            fields=self.fields,
            since=None if self.since is None else self.since.at(now),
            until=None if self.until is None else self.until.at(now),
            time=self.time,
        )


NOTHING = Wanted(None, (), None, None, None, None, None, (), None, None, "created")


def pairs(
    _ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """`feed.host=a.example` → a path into the payload and the value there."""
    found = [value.partition("=") for value in values]
    for value, (path, equals, _) in zip(values, found, strict=True):
        if not (equals and path and all(path.split("."))):
            raise click.BadParameter(f"{value!r} is not PATH=VALUE, such as feed.host=a.example")
    return tuple((path, wanted) for path, _, wanted in found)


def not_empty(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("must not be empty; leave it out to find everything")
    return value


_OPTIONS = (
    click.option("--queue", metavar="NAME", shell_complete=complete.queues, help="Only jobs of this queue."),
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice([state.value for state in State]),
        help="Only jobs in this state; may be repeated.",
    ),
    click.option("--task", metavar="NAME", shell_complete=complete.tasks, help="Only jobs of this task."),
    click.option("--key", callback=not_empty, help="Only jobs with this key."),
    click.option("--tag", callback=not_empty, help="Only jobs with this tag."),
    click.option(
        "--flow",
        metavar="ID",
        callback=not_empty,
        shell_complete=complete.flows,
        help="Only jobs of this flow.",
    ),
    click.option(
        "--text",
        callback=not_empty,
        help="Only jobs with this in task, key, tags, payload, note, reason or error.",
    ),
    click.option(
        "--field",
        "fields",
        metavar="PATH=VALUE",
        multiple=True,
        callback=pairs,
        help="Only jobs with this value in their payload: feed.host=a.example; may be repeated.",
    ),
    click.option(
        "--since", callback=times.instant, metavar="WHEN", help="Not before: 10m, 2h (so long ago) or a time."
    ),
    click.option(
        "--until",
        callback=times.instant,
        metavar="WHEN",
        help="Before: 10m, 2h (so long ago), +1h or a time.",
    ),
    click.option(
        "--time",
        type=click.Choice(["created", "due", "finished"]),
        default="created",
        show_default=True,
        help="What --since and --until are about.",
    ),
)


def with_filter(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command gets them as one `wanted`."""

    @functools.wraps(command)
    def wrapped(*args: Any, states: tuple[str, ...], **options: Any) -> Any:
        typed = {name: options.pop(name) for name in _NAMES}
        return command(*args, wanted=Wanted(states=tuple(map(State, states)), **typed), **options)

    return functools.reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), wrapped)


_NAMES = ("queue", "task", "key", "tag", "flow", "text", "fields", "since", "until", "time")
