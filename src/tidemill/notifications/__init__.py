"""Notifies other programs through signed webhooks, and people through alerts.

    signatures           signs deliveries; receivers call `verify`
    address_policy       which addresses a webhook may call
    http_client          one POST, bounded in time and size
    webhook_definitions      webhook definitions, and how the store keeps them
    webhook_deliveries   bodies, and the job that sends one delivery
    webhook_finder       finds finished jobs and pool changes that have no delivery yet
    webhooks             `app.webhooks`, also for the command line and the HTTP API
    alert_rules          rules, and the next state of each alert
    alert_readings       reads from the store the values that rules compare
    alert_messages       the text of a message
    alert_channels       e-mail, Slack and DingTalk
    alerts               one evaluation of all rules, and `app.alerts`
    outage_alerts        alerts while the store is unreachable
    config               the notification settings of an application

Notifications never delay a job. If a worker dies, another worker makes its deliveries. Two workers that find
the same event create only one delivery.
"""

from __future__ import annotations

from tidemill.notifications.signatures import verify

__all__ = ["verify"]
