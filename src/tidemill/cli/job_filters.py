"""Selects jobs on the command line: filter options, and ids shortened to a prefix."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import click

from tidemill.app import Tidemill
from tidemill.cli import completion
from tidemill.cli import options as cli_options
from tidemill.cli.options import TimeOption
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.errors import JobNotFound
from tidemill.inspect.formatting import pluralize
from tidemill.inspect.queues import require_queue


@dataclass(frozen=True)
class FilterOptions:
    """The filter options as the user typed them. `since` and `until` may be relative to now. The method
    `filter` converts them to wall times by the store's clock."""

    queue: str | None
    states: tuple[State, ...]
    task: str | None
    key: str | None
    tag: str | None
    flow: str | None
    text: str | None
    fields: tuple[tuple[str, str], ...]
    since: TimeOption | None
    until: TimeOption | None
    time: Literal["created", "due", "finished"]

    def is_given(self) -> bool:
        """True if the user gave at least one filter option. `--time` alone does not count, because it selects
        no jobs."""
        return replace(self, time=NO_FILTER.time) != NO_FILTER

    async def filter(self, app: Tidemill, states: tuple[State, ...] | None = None) -> Filter:
        """Returns the filter that these options describe. `states` applies if the user gave no --state.

        Raises QueueNotFound if neither the store nor a task of the application has the queue."""
        if self.queue is not None and all(task.queue != self.queue for task in app.tasks.values()):
            await require_queue(app.store, self.queue)
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


NO_FILTER = FilterOptions(None, (), None, None, None, None, None, (), None, None, "created")


def parse_field_filters(
    _ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Returns (path in the payload, value) for each `--field`. `feed.host=a.example` gives the path
    `feed.host` and the value `a.example`."""
    found = [value.partition("=") for value in values]
    for value, (path, equals, _) in zip(values, found, strict=True):
        if not (equals and path and all(path.split("."))):
            raise click.BadParameter(f"{value!r} is not PATH=VALUE, such as feed.host=a.example")
    return tuple((path, value) for path, _, value in found)


def refuse_empty(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("must not be empty; leave it out to find everything")
    return value


_FILTER_OPTIONS = (
    click.option(
        "--queue", metavar="NAME", shell_complete=completion.complete_queues, help="Only jobs of this queue."
    ),
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice([state.value for state in State]),
        help="Only jobs in this state; may be repeated.",
    ),
    click.option(
        "--task", metavar="NAME", shell_complete=completion.complete_tasks, help="Only jobs of this task."
    ),
    click.option("--key", callback=refuse_empty, help="Only jobs with this key."),
    click.option("--tag", callback=refuse_empty, help="Only jobs with this tag."),
    click.option(
        "--flow",
        metavar="ID",
        callback=refuse_empty,
        shell_complete=completion.complete_flows,
        help="Only jobs of this flow.",
    ),
    click.option(
        "--text",
        callback=refuse_empty,
        help="Only jobs with this text in task, key, tags, payload, note, reason or error.",
    ),
    click.option(
        "--field",
        "fields",
        metavar="PATH=VALUE",
        multiple=True,
        callback=parse_field_filters,
        help="Only jobs with this value in their payload: feed.host=a.example; may be repeated.",
    ),
    click.option(
        "--since",
        callback=cli_options.parse_time_or_age,
        metavar="WHEN",
        help="Not before this time: 10m or 2h ago, or a date and time.",
    ),
    click.option(
        "--until",
        callback=cli_options.parse_time_or_age,
        metavar="WHEN",
        help="Before this time: 10m or 2h ago, +1h from now, or a date and time.",
    ),
    click.option(
        "--time",
        type=click.Choice(["created", "due", "finished"]),
        default="created",
        show_default=True,
        help="Which time --since and --until refer to.",
    ),
)


def with_filter(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds the filter options to a command. The command receives them as `filter_options`."""

    @functools.wraps(command)
    def wrapped(*args: Any, states: tuple[str, ...], **options: Any) -> Any:
        typed = {name: options.pop(name) for name in _FILTER_NAMES}
        return command(
            *args, filter_options=FilterOptions(states=tuple(map(State, states)), **typed), **options
        )

    return functools.reduce(lambda decorated, option: option(decorated), reversed(_FILTER_OPTIONS), wrapped)


_FILTER_NAMES = ("queue", "task", "key", "tag", "flow", "text", "fields", "since", "until", "time")


MIN_PREFIX_LENGTH = 8
"""A shorter prefix is not accepted: ids start with their creation time, so it would soon match other jobs."""

MAX_MATCHES_NAMED = 5


async def resolve_ids(app: Tidemill, typed: Sequence[str]) -> list[str]:
    """Returns the full job id for each typed id or id prefix. Raises a usage error if several jobs match a
    prefix. A prefix that matches no job, or has fewer than 8 characters, is returned unchanged."""
    jobs = await app.store.get(typed)
    return [
        id_ if job is not None else await _resolve_prefix(app, id_)
        for id_, job in zip(typed, jobs, strict=True)
    ]


async def resolve_id(app: Tidemill, typed: str) -> str:
    (id_,) = await resolve_ids(app, [typed])
    if (await app.store.get([id_]))[0] is None:
        raise JobNotFound(missing_jobs_message([typed]))
    return id_


def missing_jobs_message(typed: Sequence[str]) -> str:
    named = f"there is no {'job' if len(typed) == 1 else 'jobs'} {', '.join(map(repr, typed))}"
    short = any(len(id_) < MIN_PREFIX_LENGTH for id_ in typed)
    rule = f"; the beginning of an id is enough with {MIN_PREFIX_LENGTH} characters or more" if short else ""
    return f"{named}: the id is wrong, or it was pruned{rule}"


async def _resolve_prefix(app: Tidemill, typed: str) -> str:
    if len(typed) < MIN_PREFIX_LENGTH:
        return typed
    filter_ = Filter(id_prefix=typed)
    found = (await app.inspect.find(filter_, limit=MAX_MATCHES_NAMED, scan_limit=None)).jobs
    if len(found) <= 1:
        return found[0].id if found else typed
    named = ", ".join(f"{job.id} ({job.task}, {job.state})" for job in found)
    more = (await app.inspect.count(filter_, scan_limit=None)).jobs - len(found)
    others = f" and {pluralize(more, 'other')}" if more else ""
    raise click.UsageError(f"{typed!r} could be {named}{others}; write more of the id")
