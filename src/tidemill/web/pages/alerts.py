"""What is wrong by the rules there are, who hears of it, and webhooks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tidemill.seam.answers import Go, Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.telling.webhook import NewWebhook, What
from tidemill.web.api.fields import Name
from tidemill.web.asked import Asked
from tidemill.web.going import go


class AddWebhook(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    url: Annotated[str, Meta(max_length=2000)]
    on: list[What] = msgspec.field(default_factory=list)


async def alerts(asked: Asked) -> Page:
    """Addresses of webhooks may have secrets in them: only an admin sees those."""
    app, is_admin = asked.app, asked.who.role.may(Role.ADMIN)
    return Page(
        "alerts.html",
        {
            "states": await app.alerts.states(),
            "rules": app.alerts.rules,
            "channels": app.alerts.channels,
            "webhooks": await app.webhooks.list() if is_admin else [],
            "whats": list(What),
        },
        live=("states", "webhooks"),
    )


async def test(asked: Asked) -> Go:
    found = await asked.app.alerts.test()
    wrong = {name: problem for name, problem in found.items() if problem is not None}
    if not found:
        return go(asked, "/alerts", told="alerts.no_channel")
    if wrong:
        told = "; ".join(f"{name}: {problem}" for name, problem in wrong.items())
        return go(asked, "/alerts", told="alerts.not_sent", problems=told)
    return go(asked, "/alerts", told="alerts.was_sent", names=", ".join(found))


async def add(asked: Asked) -> Go:
    said: AddWebhook = asked.body
    wanted = NewWebhook(name=said.name, url=said.url, on=tuple(said.on))
    await asked.app.webhooks.add(wanted, by=asked.who.name)
    return go(asked, "/alerts", told="alerts.was_added", name=said.name)


async def remove(asked: Asked) -> Go:
    await asked.app.webhooks.remove(asked.path["webhook"])
    return go(asked, "/alerts", told="alerts.was_removed", name=asked.path["webhook"])


async def try_(asked: Asked) -> Go:
    job = await asked.app.webhooks.test(asked.path["webhook"])
    return go(asked, "/jobs/{}", job, told="alerts.was_tried", name=asked.path["webhook"])


ROUTES = (
    Route(
        method="GET",
        path="/alerts",
        role=Role.VIEWER,
        handler=alerts,
        says="What is wrong now, and who is told.",
    ),
    Route(
        method="POST",
        path="/alerts/test",
        role=Role.ADMIN,
        handler=test,
        says="Send a message by every channel that is set.",
    ),
    Route(
        method="POST",
        path="/webhooks",
        role=Role.ADMIN,
        handler=add,
        says="Make a webhook, or make it anew.",
        takes=AddWebhook,
    ),
    Route(
        method="POST",
        path="/webhooks/{webhook}/remove",
        role=Role.ADMIN,
        handler=remove,
        says="Nothing more is told to it.",
    ),
    Route(
        method="POST",
        path="/webhooks/{webhook}/test",
        role=Role.ADMIN,
        handler=try_,
        says="Send it a delivery whose event is `test`.",
    ),
)
