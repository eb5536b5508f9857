"""`tidemill flows`: find flows, look at one, cancel or retry it. One file per command."""

from __future__ import annotations

from tidemill.cli.flows.cancel import cancel
from tidemill.cli.flows.listing import flows
from tidemill.cli.flows.retry import retry
from tidemill.cli.flows.show import show

for _command in (show, cancel, retry):
    flows.add_command(_command)

__all__ = ["flows"]
