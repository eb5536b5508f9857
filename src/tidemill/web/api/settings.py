"""API routes for settings: effective values with their source, and the application's own settings."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.registry import AppSetting
from tidemill.http_routes.routes import Role, Route
from tidemill.settings.settings import EffectiveSetting
from tidemill.web.api.schemas import RequestBody, ResponseBody
from tidemill.web.request import RouteRequest


class AppSettingView(ResponseBody, frozen=True, kw_only=True):
    """One of the application's own settings; `summary` describes it."""

    name: str
    value: Any
    summary: str


class SettingsView(ResponseBody, frozen=True, kw_only=True):
    """All settings in effect.

    - `file`: the TOML file that was read, null if there is none
    - `settings`: Tidemill's settings, with secrets masked
    - `application`: the application's own settings, which can be changed at run time"""

    file: str | None
    settings: list[EffectiveSetting]
    application: list[AppSettingView]


class SettingValueBody(RequestBody, frozen=True, kw_only=True):
    value: Any


async def get_settings(request: RouteRequest) -> SettingsView:
    app = request.app
    read = app.settings.file
    return SettingsView(
        file=None if read is None else str(read),
        settings=app.settings.effective(app.queues),
        application=[await _app_setting_view(setting) for setting in app.web.settings.values()],
    )


async def change_setting(request: RouteRequest) -> AppSettingView:
    name, application = request.path["setting"], request.app.web.settings
    setting = application.get(name)
    if setting is None:
        names = ", ".join(application) or "none; Tidemill's are set by arguments, the environment or its file"
        raise HTTPError(
            HTTPStatus.NOT_FOUND, f"the application has no setting {name!r} of its own; there are: {names}"
        )
    await setting.write(setting.value_of(request.body.value))
    return await _app_setting_view(setting)


async def _app_setting_view(setting: AppSetting) -> AppSettingView:
    return AppSettingView(name=setting.name, value=await setting.read(), summary=setting.summary)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/settings",
        role=Role.VIEWER,
        handler=get_settings,
        summary="All effective settings with their source, secrets masked, and application settings.",
        response=SettingsView,
    ),
    Route(
        method="PUT",
        path="/api/v1/settings/{setting}",
        role=Role.ADMIN,
        handler=change_setting,
        summary="Change one of the application's own settings.",
        body=SettingValueBody,
        response=AppSettingView,
    ),
)
