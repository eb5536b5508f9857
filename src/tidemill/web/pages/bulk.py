"""What is done to several jobs that were chosen, or to all that match."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import msgspec

from tidemill.core.changes import Cancel, Change, Delete, Reprioritise, RetryNow, RunNow
from tidemill.seam.answers import Go
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.bulk import Many, change_many
from tidemill.web.api.fields import Name, Priority, Whole
from tidemill.web.api.which import Which
from tidemill.web.asked import Asked
from tidemill.web.drawing import address
from tidemill.web.pages.jobs import Wanted
from tidemill.web.wording import Words, words


class Chosen(Wanted, frozen=True, kw_only=True):
    """`ids` are those that were chosen; with `every` all that match are meant, and `confirm` is how many
    they were when somebody agreed."""

    ids: list[Name] = msgspec.field(default_factory=list)
    every: bool = False
    confirm: Whole = 0
    priority: Priority | None = None

    def many(self, now: float) -> Many:
        if not self.every:
            return Many(which=Which(ids=self.ids), confirm=len(self.ids))
        wanted = self.filter(now)
        given = {name: getattr(wanted, name) for name in Which.__struct_fields__}
        lists = {
            name: None if given[name] is None else list(given[name]) for name in ("ids", "states", "fields")
        }
        return Many(which=Which(**given | lists), confirm=self.confirm)


def _route(verb: str, change: Callable[[Asked], Change], says: str, role: Role = Role.OPERATOR) -> Route:
    async def handler(asked: Asked) -> Go:
        said: Chosen = asked.body
        done = await change_many(asked, said.many(asked.app.clock.wall()), change(asked))
        say = words(asked.language)
        changed = done.changed or 0
        unchanged = (done.unchanged or 0) if said.every else len(said.ids) - changed
        return Go(_back(said), f"{say(f'bulk.{verb}', count=changed)}{_left(say, unchanged)}")

    return Route(method="POST", path=f"/bulk/{verb}", role=role, handler=handler, says=says, takes=Chosen)


def _back(said: Chosen) -> str:
    wanted = Wanted(**{name: getattr(said, name) for name in Wanted.__struct_fields__})
    return address("/jobs", **wanted.given())


def _left(say: Words, unchanged: int) -> str:
    return f" {say('bulk.unchanged', count=unchanged)}" if unchanged else ""


def _priority(asked: Asked) -> Reprioritise:
    said: Chosen = asked.body
    if said.priority is None:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "priority: must be given; a smaller one runs first",
            field="priority",
        )
    return Reprioritise(said.priority)


ROUTES = (
    _route("retry", lambda _: RetryNow(), "Ended jobs run again."),
    _route("cancel", lambda asked: Cancel(f"cancelled by {asked.who.name}"), "Jobs that have not ended end."),
    _route("run", lambda _: RunNow(), "Scheduled jobs become ready now."),
    _route("reprioritise", _priority, "Jobs that have not started get another priority."),
    _route("delete", lambda _: Delete(), "Jobs that do not run are deleted.", Role.ADMIN),
)
