"""`tidemill webhooks`: who is told what happens. One file per command."""

from __future__ import annotations

from tidemill.cli.webhooks.add import add
from tidemill.cli.webhooks.listing import webhooks
from tidemill.cli.webhooks.remove import remove
from tidemill.cli.webhooks.test import test

for _command in (add, remove, test):
    webhooks.add_command(_command)

__all__ = ["webhooks"]
