"""`tidemill alerts`: what is wrong, and whether people would hear of it. One file per command."""

from __future__ import annotations

from tidemill.cli.alerts.listing import alerts
from tidemill.cli.alerts.test import test

alerts.add_command(test)

__all__ = ["alerts"]
