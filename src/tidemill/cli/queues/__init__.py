"""`tidemill queues`: what queues hold, and what is set on them. One file per command."""

from __future__ import annotations

from tidemill.cli.queues.empty import empty
from tidemill.cli.queues.info import info
from tidemill.cli.queues.listing import queues
from tidemill.cli.queues.pause import pause
from tidemill.cli.queues.resume import resume
from tidemill.cli.queues.set import set_
from tidemill.cli.queues.unset import unset

for _command in (info, pause, resume, set_, unset, empty):
    queues.add_command(_command)

__all__ = ["queues"]
