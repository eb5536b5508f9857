"""What is done to a queue from its page."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill.core.queues import QueueSettings, Retention
from tidemill.seam.answers import Go
from tidemill.seam.roles import Role
from tidemill.seam.routes import Handler, Route
from tidemill.web.api.fields import Sentence, Whole
from tidemill.web.asked import Asked
from tidemill.web.going import go
from tidemill.web.lasting import end_of, span_of


class Pausing(msgspec.Struct, frozen=True):
    lasts: str | None = None
    reason: Sentence | None = None


class Setting(msgspec.Struct, frozen=True):
    """What shall hold. A bound that is left blank is none."""

    weight: int | None = None
    concurrency: int | None = None
    key_concurrency: int | None = None
    max_length: int | None = None
    crash_limit: int | None = None
    keep_done_age: str | None = None
    keep_done_count: Whole | None = None
    keep_failed_age: str | None = None
    keep_failed_count: Whole | None = None
    keep_cancelled_age: str | None = None
    keep_cancelled_count: Whole | None = None
    lasts: str | None = None
    reason: Sentence | None = None

    def changes(self, holds: QueueSettings) -> dict[str, Any]:
        """What differs from what holds now."""
        wanted: dict[str, Any] = {
            name: getattr(self, name) for name in ("concurrency", "key_concurrency", "max_length")
        }
        for name in ("weight", "crash_limit"):
            wanted[name] = getattr(holds if getattr(self, name) is None else self, name)
        for name in ("keep_done", "keep_failed", "keep_cancelled"):
            age = span_of(getattr(self, f"{name}_age"), field=f"{name}_age")
            kept = Retention(age, getattr(self, f"{name}_count"))
            held: Retention = getattr(holds, name)
            wanted[name] = held if kept.same_bounds(held) else kept
        return {name: value for name, value in wanted.items() if value != getattr(holds, name)}


class Named(msgspec.Struct, frozen=True):
    confirm: str = ""


async def pause(asked: Asked) -> Go:
    said: Pausing = asked.body
    until = await end_of(asked, said.lasts)
    await asked.inspect.pause(asked.path["queue"], until=until, reason=said.reason)
    return go(asked, "/queues/{}", asked.path["queue"], told="queue.was_paused")


async def resume(asked: Asked) -> Go:
    await asked.inspect.resume(asked.path["queue"])
    return go(asked, "/queues/{}", asked.path["queue"], told="queue.was_resumed")


async def override(asked: Asked) -> Go:
    said: Setting = asked.body
    name = asked.path["queue"]
    changes = said.changes((await asked.inspect.queue(name)).settings)
    until = await end_of(asked, said.lasts)
    await asked.inspect.override(name, by=asked.who.name, reason=said.reason, until=until, **changes)
    return go(asked, "/queues/{}", asked.path["queue"], told="queue.was_set")


async def follow(asked: Asked) -> Go:
    await asked.inspect.clear_override(asked.path["queue"])
    return go(asked, "/queues/{}", asked.path["queue"], told="queue.follows")


async def empty(asked: Asked) -> Go:
    gone = await asked.inspect.empty(asked.path["queue"], confirm=asked.body.confirm)
    return go(asked, "/queues/{}", asked.path["queue"], told="queue.was_emptied", count=gone)


def _post(verb: str, handler: Handler, role: Role, says: str, takes: type[Any] | None = None) -> Route:
    return Route(
        method="POST", path=f"/queues/{{queue}}/{verb}", role=role, handler=handler, says=says, takes=takes
    )


ROUTES = (
    _post("pause", pause, Role.OPERATOR, "Nothing new of the queue starts.", Pausing),
    _post("resume", resume, Role.OPERATOR, "The end of a pause."),
    _post("override", override, Role.ADMIN, "Other settings than the code's.", Setting),
    _post("follow", follow, Role.ADMIN, "The code's settings again."),
    _post("empty", empty, Role.ADMIN, "Every job of the queue that does not run is deleted.", Named),
)
