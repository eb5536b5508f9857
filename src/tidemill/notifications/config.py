"""The notification settings of an application: webhooks, alert rules and channels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tidemill.clock import Clock
from tidemill.contract.store import Store
from tidemill.notifications.address_policy import AllowedAddresses
from tidemill.notifications.alert_channels import AlertChannel
from tidemill.notifications.alert_rules import DEFAULT_RULES, AlertRule, MeasureFunction
from tidemill.notifications.webhook_definitions import DeclaredWebhook
from tidemill.tasks.definition import TaskDefinition


@dataclass(kw_only=True)
class NotificationConfig:
    """The notification settings of an application.

    - `where`: a function that returns the store's address without secrets
    - `webhooks`, `declared_rules`, `measures`: declared in code, which may add entries later
    - `configured_rules` and all fields after it: from the settings
    """

    store: Callable[[], Awaitable[Store]]
    clock: Callable[[], Clock]
    where: Callable[[], str]
    webhooks: dict[str, DeclaredWebhook] = field(default_factory=dict)
    declared_rules: dict[str, AlertRule] = field(default_factory=dict)
    measures: dict[str, MeasureFunction] = field(default_factory=dict)
    configured_rules: Mapping[str, AlertRule] = field(default_factory=dict)
    channels: Mapping[str, AlertChannel] = field(default_factory=dict)
    allowed: AllowedAddresses = field(default_factory=AllowedAddresses)
    timeout: float = 15.0
    every: float = 15.0
    digest: float = 30.0
    repeat: float = 3600.0
    public_url: str | None = None

    @property
    def rules(self) -> Mapping[str, AlertRule]:
        """The alert rules in effect, by name. A configured rule replaces a declared rule of the same name. If
        there is no rule but a channel is configured, the default rules apply."""
        rules = {**self.declared_rules, **self.configured_rules}
        return rules or (DEFAULT_RULES if self.channels else {})

    def tasks(self) -> dict[str, TaskDefinition]:
        """Returns the tasks that deliver webhooks and send alerts; every worker registers them."""
        from tidemill.notifications import alert_channels, webhook_deliveries

        found = (
            webhook_deliveries.delivery_task(self.store, self.clock, self.allowed, self.timeout),
            alert_channels.alert_task(lambda: self.channels, self.clock),
        )
        return {task.name: task for task in found}
