"""The settings page: effective values with their source, queue settings, and the store."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import msgspec

from tidemill.contract.queues import QueueInfo
from tidemill.core.queues import QueueSettings
from tidemill.http_routes.routes import PageResponse, Redirect, Role, Route
from tidemill.settings import value_types
from tidemill.settings.catalogue import CATALOGUE
from tidemill.settings.settings import EffectiveSetting
from tidemill.web.api.settings import change_setting as change_own
from tidemill.web.request import RouteRequest

_DURATION_KINDS = (value_types.SECONDS, value_types.SECONDS_OR_NONE, value_types.SECONDS_OR_ZERO)


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A setting on the settings page. `origin` is the source of its value. `is_seconds` is True if the value
    is a duration in seconds."""

    name: str
    value: Any
    is_seconds: bool
    origin: str
    meaning: str


class QueueSettingCell(msgspec.Struct, frozen=True, kw_only=True):
    """The value of one setting of one queue. `overridden` is True if an operator changed the declared
    value."""

    value: Any
    declared: Any
    overridden: bool


class SettingForm(msgspec.Struct, frozen=True):
    value: str = ""


async def settings_page(request: RouteRequest) -> PageResponse:
    app = request.app
    store = await app.client.store()
    queues = await store.queues()
    names = [queue.name for queue in queues]
    return PageResponse(
        "settings.html",
        {
            "sections": _sections(app.settings.effective()),
            "file": app.settings.file,
            "unused_settings": app.settings.unread(
                {*names, *app.queues, *(task.queue for task in app.tasks.values())}
            ),
            "queues": [(queue, _cells(queue)) for queue in queues],
            "columns": QueueSettings.__struct_fields__,
            "app_settings": [(setting, await setting.read()) for setting in app.web.settings.values()],
            "store": await store.describe(),
        },
    )


async def change_setting(request: RouteRequest) -> Redirect:
    await change_own(request)
    return request.redirect("/settings", notice="settings.notice_saved", name=request.path["setting"])


def _sections(entries: list[EffectiveSetting]) -> list[tuple[str, list[SettingRow]]]:
    """Returns the settings grouped by the first part of their names, such as `worker`. Queue settings are
    left out."""
    rows = [
        SettingRow(
            name=entry.name,
            value=entry.value,
            is_seconds=CATALOGUE[entry.name].kind in _DURATION_KINDS,
            origin=entry.origin,
            meaning=CATALOGUE[entry.name].meaning,
        )
        for entry in entries
        if entry.name in CATALOGUE
    ]
    return [(section, list(group)) for section, group in groupby(rows, key=_section)]


def _section(row: SettingRow) -> str:
    return row.name.partition(".")[0] if "." in row.name else ""


def _cells(queue: QueueInfo) -> list[QueueSettingCell]:
    overridden_names = {} if queue.override is None else queue.override.changes.given()
    return [
        QueueSettingCell(
            value=getattr(queue.settings, name),
            declared=getattr(queue.declared, name),
            overridden=name in overridden_names
            and getattr(queue.settings, name) != getattr(queue.declared, name),
        )
        for name in QueueSettings.__struct_fields__
    ]


ROUTES = (
    Route(
        method="GET",
        path="/settings",
        role=Role.VIEWER,
        handler=settings_page,
        summary="All effective settings with their source, secrets masked.",
    ),
    Route(
        method="POST",
        path="/settings/{setting}",
        role=Role.ADMIN,
        handler=change_setting,
        summary="Change one of the application's own settings.",
        body=SettingForm,
    ),
)
