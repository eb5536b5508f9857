"""Whom alerts reach and whom webhooks may call, as it is set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tidemill.clock import Clock
from tidemill.errors import ConfigurationError
from tidemill.settings.settings import Settings

if TYPE_CHECKING:
    from tidemill.contract.store import Store
    from tidemill.telling.alerts.channels import Channel
    from tidemill.telling.telling import Telling


def telling_of(
    settings: Settings,
    store: Callable[[], Awaitable[Store]],
    clock: Callable[[], Clock],
    where: Callable[[], str],
) -> Telling:
    from tidemill.telling.addresses import Allowed
    from tidemill.telling.telling import Telling

    return Telling(
        store=store,
        clock=clock,
        where=where,
        set_rules=settings.value("alerts.rules"),
        channels=_channels(settings),
        allowed=Allowed.of(settings.value("webhooks.allow")),
        timeout=settings.value("webhooks.timeout"),
        every=settings.value("alerts.every"),
        digest=settings.value("alerts.digest"),
        repeat=settings.value("alerts.repeat"),
        public_url=settings.value("web.public_url"),
    )


def _channels(settings: Settings) -> dict[str, Channel]:
    server, to = settings.value("alerts.smtp_url"), settings.value("alerts.email_to")
    slack, robot = settings.value("alerts.slack_url"), settings.value("alerts.dingtalk_url")
    if bool(server) != bool(to):
        missing, given = ("email_to", "smtp_url") if server else ("smtp_url", "email_to")
        raise ConfigurationError(f"alerts.{missing}: must be set too, alerts.{given} is")
    found: dict[str, Channel] = {}
    if server:
        from tidemill.telling.alerts.channels import Email

        found["email"] = Email.at(server, settings.value("alerts.email_from") or to[0], to)
    if slack:
        from tidemill.telling.alerts.channels import Slack

        found["slack"] = Slack(slack)
    if robot:
        from tidemill.telling.alerts.channels import DingTalk

        found["dingtalk"] = DingTalk(robot, settings.value("alerts.dingtalk_secret"))
    return found
