"""What is done to all jobs a filter means: asked once for how many, and once more to do it."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from msgspec.structs import replace

from tidemill.access.redacting import searches_values
from tidemill.core.changes import Archive, Cancel, Change, Delete, Reprioritise, RetryNow, RunNow
from tidemill.core.filters import Filter
from tidemill.core.states import LIVE, PENDING, State
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role, Who
from tidemill.seam.routes import Handler, Route
from tidemill.web.api.fields import Answer, Body, Priority, Sentence, Whole
from tidemill.web.api.which import Find, Which, filter_of, require_some
from tidemill.web.asked import Asked
from tidemill.web.confirming import still_meant


class Many(Body, frozen=True, kw_only=True):
    """Without `confirm` nothing is changed and the answer says how many are meant; with that number it is
    done. Without states in `which` those are meant that the change applies to; a retry then means failed
    jobs."""

    which: Which
    confirm: Whole | None = None


class ManyWhy(Many, frozen=True, kw_only=True):
    reason: Sentence | None = None


class ManyPriority(Many, frozen=True, kw_only=True):
    priority: Priority


class Matching(Answer, frozen=True, kw_only=True):
    """With `more`, so many were found before the search ended, and there may be others."""

    matching: int
    more: bool


class Done(Answer, frozen=True, kw_only=True):
    """`matching` jobs are meant. The others are null until it is confirmed: how many were `changed`, were in
    no state for it (`unchanged`), and no longer matched when their turn came (`moved`)."""

    matching: int
    changed: int | None = None
    unchanged: int | None = None
    moved: int | None = None


def states_for(change: Change) -> tuple[State, ...]:
    match change:
        case RetryNow():
            meant = frozenset({State.FAILED})
        case Cancel():
            meant = LIVE
        case RunNow():
            meant = frozenset({State.SCHEDULED})
        case Delete():
            meant = frozenset(State) - {State.RUNNING}
        case _:
            meant = PENDING
    return tuple(state for state in State if state in meant)


async def count(asked: Asked) -> Matching:
    found = await asked.inspect.count(await filter_of(asked, asked.query))
    return Matching(matching=found.jobs, more=found.more)


async def change_many(asked: Asked, said: Many, change: Change) -> Done:
    require_some(said.which)
    wanted = await filter_of(asked, said.which, states_for(change))
    wanted, matching = await _counted(asked, wanted)
    if said.confirm is None:
        return Done(matching=matching)
    if not still_meant(matching, said.confirm):
        raise Refused(
            HTTPStatus.CONFLICT,
            f"confirm: {said.confirm} jobs were confirmed and {matching} are meant by now; nothing was "
            f"changed, send {matching} to go on",
            field="confirm",
        )
    done = await asked.inspect.change(wanted, change)
    return Done(matching=matching, changed=done.changed, unchanged=done.unchanged, moved=done.moved)


async def _counted(asked: Asked, wanted: Filter) -> tuple[Filter, int]:
    """Exact: it is to be confirmed. By a text or a field those are meant in which it can be seen: what is
    changed must not tell of a secret."""
    if not searches_values(wanted):
        named = None if wanted.ids is None else tuple(dict.fromkeys(wanted.ids))
        return wanted, (await asked.inspect.count(replace(wanted, ids=named), looks=None)).jobs
    met = tuple([job.id async for job in asked.inspect.each(wanted)])
    return replace(wanted, ids=met), len(met)


def is_confirmed(said: Many) -> bool:
    """Until then nothing was done that a log could have."""
    return said.confirm is not None


def _route(
    verb: str,
    change: Callable[[Many, Who], Change],
    says: str,
    *,
    takes: type[Many] = Many,
    role: Role = Role.OPERATOR,
) -> Route:
    async def handler(asked: Asked) -> Done:
        return await change_many(asked, asked.body, change(asked.body, asked.who))

    return Route(
        method="POST",
        path=f"/api/v1/bulk/{verb}",
        role=role,
        handler=_named(handler, verb),
        says=says,
        takes=takes,
        answers=Done,
        audited=is_confirmed,
    )


def _named(handler: Handler, verb: str) -> Handler:
    handler.__name__ = f"{verb}_many"
    return handler


def _cancel(said: Many, who: Who) -> Cancel:
    return Cancel(_why(said) or f"cancelled by {who.name}")


def _archive(said: Many, who: Who) -> Archive:
    return Archive(_why(said) or f"archived by {who.name}")


def _why(said: Many) -> str | None:
    return said.reason if isinstance(said, ManyWhy) else None


def _reprioritise(said: Many, _: Who) -> Reprioritise:
    assert isinstance(said, ManyPriority)  # noqa: S101 - its route takes nothing else
    return Reprioritise(said.priority)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/bulk/count",
        role=Role.VIEWER,
        handler=count,
        says="How many jobs match: by queue and state exactly, by anything else among the newest that are "
        "looked at.",
        query=Find,
        answers=Matching,
    ),
    _route("retry", lambda *_: RetryNow(), "Ended jobs run again, with all their attempts."),
    _route("cancel", _cancel, "Jobs that have not ended end; running ones are told to stop.", takes=ManyWhy),
    _route("run", lambda *_: RunNow(), "Scheduled jobs become ready now."),
    _route("archive", _archive, "Jobs that have not started join the dead letters.", takes=ManyWhy),
    _route(
        "reprioritise",
        _reprioritise,
        "Jobs that have not started get another priority.",
        takes=ManyPriority,
    ),
    _route("delete", lambda *_: Delete(), "Jobs that do not run are deleted.", role=Role.ADMIN),
)
