"""`tidemill schedules`: when jobs come by themselves, and what is set on that. One file per command."""

from __future__ import annotations

from tidemill.cli.schedules.info import info
from tidemill.cli.schedules.listing import schedules
from tidemill.cli.schedules.pause import pause
from tidemill.cli.schedules.remove import remove
from tidemill.cli.schedules.resume import resume
from tidemill.cli.schedules.run import run
from tidemill.cli.schedules.set import set_
from tidemill.cli.schedules.unset import unset

for _command in (info, pause, resume, run, set_, unset, remove):
    schedules.add_command(_command)

__all__ = ["schedules"]
