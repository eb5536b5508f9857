"""Webhooks: who is told when jobs and flows end and pools close."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from msgspec import Meta

from tidemill.errors import WebhookNotFound
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.telling.webhook import NewWebhook
from tidemill.telling.webhooks import WebhookView
from tidemill.web.api.fields import Answer
from tidemill.web.asked import Asked


class Tried(Answer, frozen=True, kw_only=True):
    """`job` makes the delivery."""

    job: str


async def listing(asked: Asked) -> list[WebhookView]:
    return await asked.app.webhooks.list()


async def get(asked: Asked) -> WebhookView:
    return await asked.app.webhooks.get(asked.path["webhook"])


async def add(asked: Asked) -> WebhookView:
    return await asked.app.webhooks.add(asked.body, by=asked.who.name)


async def remove(asked: Asked) -> None:
    name = asked.path["webhook"]
    if not await asked.app.webhooks.remove(name):
        raise WebhookNotFound(f"there is no webhook {name!r}; GET /api/v1/webhooks lists those there are")


async def test(asked: Asked) -> Tried:
    return Tried(job=await asked.app.webhooks.test(asked.path["webhook"]))


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/webhooks",
        role=Role.ADMIN,
        handler=listing,
        says="All webhooks, those that code declares too, with what waits to be delivered.",
        answers=list[WebhookView],
    ),
    Route(
        method="POST",
        path="/api/v1/webhooks",
        role=Role.ADMIN,
        handler=add,
        says="Make a webhook, or make it anew; one that code declares is refused.",
        takes=Annotated[NewWebhook, Meta(examples=[{"name": "shop", "url": "https://shop.example/hook"}])],
        answers=WebhookView,
        status=HTTPStatus.CREATED,
    ),
    Route(
        method="GET",
        path="/api/v1/webhooks/{webhook}",
        role=Role.ADMIN,
        handler=get,
        says="One webhook.",
        answers=WebhookView,
    ),
    Route(
        method="DELETE",
        path="/api/v1/webhooks/{webhook}",
        role=Role.ADMIN,
        handler=remove,
        says="Nothing more is told to it, and what waits is not delivered.",
        status=HTTPStatus.NO_CONTENT,
    ),
    Route(
        method="POST",
        path="/api/v1/webhooks/{webhook}/test",
        role=Role.ADMIN,
        handler=test,
        says="Send it a delivery whose event is `test`.",
        answers=Tried,
        made=lambda tried: {"job": tried.job},
    ),
)
