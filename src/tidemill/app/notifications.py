"""`app.webhook`, `app.alert` and the notification settings of an application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from tidemill.app.application import Application
from tidemill.client.task import Task
from tidemill.clock import Clock
from tidemill.errors import ConfigurationError
from tidemill.settings.settings import Settings

if TYPE_CHECKING:
    from tidemill.contract.store import Store
    from tidemill.notifications.alert_channels import AlertChannel
    from tidemill.notifications.alert_rules import MeasureFunction
    from tidemill.notifications.alerts import Alerts
    from tidemill.notifications.config import NotificationConfig
    from tidemill.notifications.webhook_definitions import BodyFunction
    from tidemill.notifications.webhooks import Webhooks


def notification_config(
    settings: Settings,
    store: Callable[[], Awaitable[Store]],
    clock: Callable[[], Clock],
    where: Callable[[], str],
) -> NotificationConfig:
    from tidemill.notifications.address_policy import AllowedAddresses
    from tidemill.notifications.config import NotificationConfig

    return NotificationConfig(
        store=store,
        clock=clock,
        where=where,
        configured_rules=settings.value("alerts.rules"),
        channels=_alert_channels(settings),
        allowed=AllowedAddresses.of(settings.value("webhooks.allow")),
        timeout=settings.value("webhooks.timeout"),
        every=settings.value("alerts.interval"),
        digest=settings.value("alerts.digest"),
        repeat=settings.value("alerts.repeat"),
        public_url=settings.value("web.public_url"),
    )


def _alert_channels(settings: Settings) -> dict[str, AlertChannel]:
    server, to = settings.value("alerts.smtp_url"), settings.value("alerts.email_to")
    slack, robot = settings.value("alerts.slack_url"), settings.value("alerts.dingtalk_url")
    if bool(server) != bool(to):
        missing, present = ("email_to", "smtp_url") if server else ("smtp_url", "email_to")
        raise ConfigurationError(f"alerts.{missing}: must be set too, alerts.{present} is")
    found: dict[str, AlertChannel] = {}
    if server:
        from tidemill.notifications.alert_channels import EmailChannel

        found["email"] = EmailChannel.at(server, settings.value("alerts.email_from") or to[0], to)
    if slack:
        from tidemill.notifications.alert_channels import SlackChannel

        found["slack"] = SlackChannel(slack)
    if robot:
        from tidemill.notifications.alert_channels import DingTalkChannel

        found["dingtalk"] = DingTalkChannel(robot, settings.value("alerts.dingtalk_secret"))
    return found


class NotificationApi(Application):
    @property
    def notifications(self) -> NotificationConfig:
        """The webhooks and alert rules of this application, from its code and its settings."""
        if self._notifications is None:
            self._notifications = notification_config(
                self.settings, self.client.store, lambda: self.clock, lambda: str(self.url)
            )
        return self._notifications

    @property
    def webhooks(self) -> Webhooks:
        """Lists webhooks and adds or removes webhooks of operators: `await app.webhooks.list()`."""
        from tidemill.notifications.address_policy import AllowedAddresses
        from tidemill.notifications.webhooks import Webhooks

        allowed = AllowedAddresses.of(self.settings.value("webhooks.allow"))
        return Webhooks(self.client.store, self.entropy.new_id, allowed)

    @property
    def alerts(self) -> Alerts:
        """The current alerts: `await app.alerts.states()`."""
        from tidemill.notifications.alerts import Alerts

        return Alerts(self.notifications)

    def webhook(
        self,
        name: str,
        url: str,
        *,
        on: Iterable[str] = ("job.done", "job.failed"),
        tasks: Iterable[Task[..., Any] | str] = (),
        queues: Iterable[str] = (),
        flows: Iterable[str] = (),
        pools: Iterable[str] = (),
        secret: str = "WEBHOOK_SECRET",  # noqa: S107 - the name of a variable
        event: str | None = None,
        body: BodyFunction | None = None,
    ) -> None:
        """Declares a webhook:

          app.webhook("reader", "https://reader.example/hook", tasks=[refresh], event="feed.refreshed",
                      body=lambda job: {"feedId": job.arguments["feed"]})

        - `on`: the events to send: job.done, job.failed, job.cancelled, flow.ended, pool.closed, pool.opened.
        - `tasks`, `queues`, `flows`, `pools`: send only events of these; by default of all.
        - `secret`: the name of the environment variable with the key that signs deliveries.
        - `event`: replaces the name of the event.
        - `body`: a function of the ended job that returns the content to send."""
        from tidemill.notifications.webhook_definitions import DeclaredWebhook, parse_webhook

        if name in self.notifications.webhooks:
            raise ConfigurationError(f"webhook {name!r} is declared twice; give one of them another name")
        webhook_settings = parse_webhook(
            name=name,
            url=url,
            on=_require_list("on", on),
            tasks=[task.name if isinstance(task, Task) else task for task in _require_list("tasks", tasks)],
            queues=_require_list("queues", queues),
            flows=_require_list("flows", flows),
            pools=_require_list("pools", pools),
            secret=secret,
        )
        if body is not None and not (callable(body) and webhook_settings.states):
            raise ConfigurationError(
                f"webhook {name!r}: body: must be a function of a job that has ended, of one that is on jobs"
            )
        self.notifications.webhooks[name] = DeclaredWebhook(webhook_settings, event, body)

    def alert(
        self,
        name: str,
        on: str | MeasureFunction,
        *,
        above: float | None = None,
        clear: float | None = None,
        min_duration: float = 0.0,
        queue: str | None = None,
        pool: str | None = None,
        window: float = 300.0,
        min_jobs: int = 10,
    ) -> None:
        """Declares an alert rule: `app.alert("feeds wait", on="queue_length", queue="feeds", above=1000,
        clear=500)`.

        `on` is the measure: queue_length, oldest_job, failure_ratio, dead_letters, pool_closed, worker_gone,
        store_size or store_lost. It may also be a function of the application that returns a number, or a
        dict of numbers by name. `AlertRule` describes the other parameters. A rule with the same name in the
        settings replaces this rule."""
        from tidemill.notifications.alert_rules import parse_rule

        if name in self.notifications.declared_rules:
            raise ConfigurationError(f"alert {name!r} is declared twice; give one of them another name")
        self.notifications.declared_rules[name] = parse_rule(
            name,
            {
                "on": "own" if callable(on) else on,
                "above": above,
                "clear": clear,
                "min_duration": min_duration,
                "queue": queue,
                "pool": pool,
                "window": window,
                "min_jobs": min_jobs,
            },
        )
        if callable(on):
            self.notifications.measures[name] = on


def _require_list(field: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str):  # a lone string is a sequence of letters and always a mistake
        raise ConfigurationError(f"{field}: must be a list, such as [{values!r}], is {values!r}")
    return list(values)
