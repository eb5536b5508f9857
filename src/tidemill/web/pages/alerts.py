"""The alerts page with its rules, channels and webhooks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tidemill.http_routes.routes import PageResponse, Redirect, Role, Route
from tidemill.notifications.webhook_definitions import NewWebhook, WebhookEvent
from tidemill.web.api.schemas import Name
from tidemill.web.request import RouteRequest


class AddWebhookForm(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    url: Annotated[str, Meta(max_length=2000)]
    on: list[WebhookEvent] = msgspec.field(default_factory=list)


async def alerts_page(request: RouteRequest) -> PageResponse:
    """Shows alerts, alert rules, channels and webhooks. Only admins see webhooks, because their addresses may
    contain secrets."""
    app, is_admin = request.app, request.user.role.may(Role.ADMIN)
    return PageResponse(
        "alerts.html",
        {
            "states": await app.alerts.states(),
            "rules": app.alerts.rules,
            "channels": app.alerts.channels,
            "webhooks": await app.webhooks.list() if is_admin else [],
            "events": list(WebhookEvent),
        },
        live=("states", "webhooks"),
    )


async def send_test_alert(request: RouteRequest) -> Redirect:
    results = await request.app.alerts.test()
    failures = {name: problem for name, problem in results.items() if problem is not None}
    if not results:
        return request.redirect("/alerts", notice="alerts.notice_no_channel")
    if failures:
        problems = "; ".join(f"{name}: {problem}" for name, problem in failures.items())
        return request.redirect("/alerts", notice="alerts.notice_not_sent", problems=problems)
    return request.redirect("/alerts", notice="alerts.notice_sent", names=", ".join(results))


async def add_webhook(request: RouteRequest) -> Redirect:
    body: AddWebhookForm = request.body
    webhook = NewWebhook(name=body.name, url=body.url, on=tuple(body.on))
    await request.app.webhooks.add(webhook, by=request.user.name)
    return request.redirect("/alerts", notice="alerts.notice_added", name=body.name)


async def remove_webhook(request: RouteRequest) -> Redirect:
    await request.app.webhooks.remove(request.path["webhook"])
    return request.redirect("/alerts", notice="alerts.notice_removed", name=request.path["webhook"])


async def send_test_webhook(request: RouteRequest) -> Redirect:
    job = await request.app.webhooks.test(request.path["webhook"])
    return request.redirect("/jobs/{}", job, notice="alerts.notice_test_sent", name=request.path["webhook"])


ROUTES = (
    Route(
        method="GET",
        path="/alerts",
        role=Role.VIEWER,
        handler=alerts_page,
        summary="Alerts, rules, channels and webhooks.",
    ),
    Route(
        method="POST",
        path="/alerts/test",
        role=Role.ADMIN,
        handler=send_test_alert,
        summary="Send a test message through every channel.",
    ),
    Route(
        method="POST",
        path="/webhooks",
        role=Role.ADMIN,
        handler=add_webhook,
        summary="Create or replace a webhook.",
        body=AddWebhookForm,
    ),
    Route(
        method="POST",
        path="/webhooks/{webhook}/remove",
        role=Role.ADMIN,
        handler=remove_webhook,
        summary="Remove a webhook.",
    ),
    Route(
        method="POST",
        path="/webhooks/{webhook}/test",
        role=Role.ADMIN,
        handler=send_test_webhook,
        summary="Deliver an event named `test` to the webhook.",
    ),
)
