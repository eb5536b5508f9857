"""What is in effect, and where each value came from."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import msgspec

from tidemill.contract.queues import QueueInfo
from tidemill.core.queues import QueueSettings
from tidemill.seam.answers import Go, Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.settings import kinds
from tidemill.settings.catalogue import CATALOGUE
from tidemill.settings.settings import Effective
from tidemill.web.api.settings import change as change_own
from tidemill.web.asked import Asked
from tidemill.web.going import go

_SECONDS = (kinds.SECONDS, kinds.SECONDS_OR_NONE, kinds.SECONDS_OR_ZERO)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """`is_seconds`: the value is a length of time."""

    name: str
    value: Any
    is_seconds: bool
    origin: str
    meaning: str


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of a queue; `overridden` by a person."""

    value: Any
    declared: Any
    overridden: bool


class NewSetting(msgspec.Struct, frozen=True):
    value: str = ""


async def settings(asked: Asked) -> Page:
    app = asked.app
    store = await app.client.store()
    queues = await store.queues()
    names = [queue.name for queue in queues]
    return Page(
        "settings.html",
        {
            "sections": _sections(app.settings.effective()),
            "file": app.settings.file,
            "unread": app.settings.unread(
                {*names, *app.queues, *(task.queue for task in app.tasks.values())}
            ),
            "queues": [(queue, _cells(queue)) for queue in queues],
            "columns": QueueSettings.__struct_fields__,
            "own": [(setting, await setting.read()) for setting in app.web.settings.values()],
            "store": await store.describe(),
        },
    )


async def change(asked: Asked) -> Go:
    await change_own(asked)
    return go(asked, "/settings", told="settings.was_set", name=asked.path["setting"])


def _sections(entries: list[Effective]) -> list[tuple[str, list[Row]]]:
    """By the first part of their names; those of queues have a table of their own."""
    rows = [
        Row(
            name=entry.name,
            value=entry.value,
            is_seconds=CATALOGUE[entry.name].kind in _SECONDS,
            origin=entry.origin,
            meaning=CATALOGUE[entry.name].meaning,
        )
        for entry in entries
        if entry.name in CATALOGUE
    ]
    return [(section, list(some)) for section, some in groupby(rows, key=_section)]


def _section(row: Row) -> str:
    return row.name.partition(".")[0] if "." in row.name else ""


def _cells(queue: QueueInfo) -> list[Cell]:
    over = {} if queue.override is None else queue.override.changes.given()
    return [
        Cell(
            value=getattr(queue.settings, name),
            declared=getattr(queue.declared, name),
            overridden=name in over and getattr(queue.settings, name) != getattr(queue.declared, name),
        )
        for name in QueueSettings.__struct_fields__
    ]


ROUTES = (
    Route(
        method="GET",
        path="/settings",
        role=Role.VIEWER,
        handler=settings,
        says="Every setting in effect and where it came from, secrets masked.",
    ),
    Route(
        method="POST",
        path="/settings/{setting}",
        role=Role.ADMIN,
        handler=change,
        says="Change a setting of the application's own.",
        takes=NewSetting,
    ),
)
