"""Settings: what is in effect and where it came from, and the application's own."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.seam.settings import OwnSetting
from tidemill.settings.settings import Effective
from tidemill.web.api.fields import Answer, Body
from tidemill.web.asked import Asked


class OwnView(Answer, frozen=True, kw_only=True):
    """A setting of the application's own; `says` is what it is about."""

    name: str
    value: Any
    says: str


class SettingsView(Answer, frozen=True, kw_only=True):
    """`file` is the TOML file that was read. Secrets are masked. `own` are the application's, which may be
    changed while it runs."""

    file: str | None
    settings: list[Effective]
    own: list[OwnView]


class NewValue(Body, frozen=True, kw_only=True):
    value: Any


async def effective(asked: Asked) -> SettingsView:
    app = asked.app
    read = app.settings.file
    return SettingsView(
        file=None if read is None else str(read),
        settings=app.settings.effective(app.queues),
        own=[await _view(setting) for setting in app.web.settings.values()],
    )


async def change(asked: Asked) -> OwnView:
    name, own = asked.path["setting"], asked.app.web.settings
    setting = own.get(name)
    if setting is None:
        there = ", ".join(own) or "none; Tidemill's are set by arguments, the environment or its file"
        raise Refused(
            HTTPStatus.NOT_FOUND, f"the application has no setting {name!r} of its own; there are: {there}"
        )
    await setting.write(setting.value_of(asked.body.value))
    return await _view(setting)


async def _view(setting: OwnSetting) -> OwnView:
    return OwnView(name=setting.name, value=await setting.read(), says=setting.says)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/settings",
        role=Role.VIEWER,
        handler=effective,
        says="Every setting in effect and where it came from, secrets masked, and the application's own.",
        answers=SettingsView,
    ),
    Route(
        method="PUT",
        path="/api/v1/settings/{setting}",
        role=Role.ADMIN,
        handler=change,
        says="Change a setting of the application's own.",
        takes=NewValue,
        answers=OwnView,
    ),
)
