"""API routes for alerts and webhooks."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from msgspec import Meta

from tidemill.errors import WebhookNotFound
from tidemill.http_routes.routes import Role, Route
from tidemill.notifications.alerts import AlertView
from tidemill.notifications.webhook_definitions import NewWebhook
from tidemill.notifications.webhooks import WebhookView
from tidemill.web.api.schemas import ResponseBody
from tidemill.web.request import RouteRequest


async def list_alerts(request: RouteRequest) -> list[AlertView]:
    return await request.app.alerts.states()


ALERT_ROUTES = (
    Route(
        method="GET",
        path="/api/v1/alerts",
        role=Role.VIEWER,
        handler=list_alerts,
        summary="Active alerts with their start, and alerts that ended recently.",
        response=list[AlertView],
    ),
)


class WebhookTestResponse(ResponseBody, frozen=True, kw_only=True):
    """The result of a request to test a webhook. `job` is the id of the job that delivers the test event."""

    job: str


async def list_webhooks(request: RouteRequest) -> list[WebhookView]:
    return await request.app.webhooks.list()


async def get_webhook(request: RouteRequest) -> WebhookView:
    return await request.app.webhooks.get(request.path["webhook"])


async def add_webhook(request: RouteRequest) -> WebhookView:
    return await request.app.webhooks.add(request.body, by=request.user.name)


async def remove_webhook(request: RouteRequest) -> None:
    name = request.path["webhook"]
    if not await request.app.webhooks.remove(name):
        raise WebhookNotFound(f"there is no webhook {name!r}; GET /api/v1/webhooks lists those there are")


async def send_test_webhook(request: RouteRequest) -> WebhookTestResponse:
    return WebhookTestResponse(job=await request.app.webhooks.test(request.path["webhook"]))


WEBHOOK_ROUTES = (
    Route(
        method="GET",
        path="/api/v1/webhooks",
        role=Role.ADMIN,
        handler=list_webhooks,
        summary="All webhooks, including declared ones, with the number of pending deliveries.",
        response=list[WebhookView],
    ),
    Route(
        method="POST",
        path="/api/v1/webhooks",
        role=Role.ADMIN,
        handler=add_webhook,
        summary="Create or replace a webhook; declared webhooks are refused.",
        body=Annotated[NewWebhook, Meta(examples=[{"name": "shop", "url": "https://shop.example/hook"}])],
        response=WebhookView,
        status=HTTPStatus.CREATED,
    ),
    Route(
        method="GET",
        path="/api/v1/webhooks/{webhook}",
        role=Role.ADMIN,
        handler=get_webhook,
        summary="One webhook.",
        response=WebhookView,
    ),
    Route(
        method="DELETE",
        path="/api/v1/webhooks/{webhook}",
        role=Role.ADMIN,
        handler=remove_webhook,
        summary="Remove a webhook; its pending deliveries are dropped.",
        status=HTTPStatus.NO_CONTENT,
    ),
    Route(
        method="POST",
        path="/api/v1/webhooks/{webhook}/test",
        role=Role.ADMIN,
        handler=send_test_webhook,
        summary="Deliver an event named `test` to the webhook.",
        response=WebhookTestResponse,
        audit_details=lambda tried: {"job": tried.job},
    ),
)

ROUTES = (*ALERT_ROUTES, *WEBHOOK_ROUTES)
