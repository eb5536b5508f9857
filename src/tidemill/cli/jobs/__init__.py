"""`tidemill jobs`: find jobs, look at one, change some. One file per command."""

from __future__ import annotations

from tidemill.cli.jobs.archive import archive
from tidemill.cli.jobs.cancel import cancel
from tidemill.cli.jobs.delete import delete
from tidemill.cli.jobs.find import jobs
from tidemill.cli.jobs.reprioritise import reprioritise
from tidemill.cli.jobs.retry import retry
from tidemill.cli.jobs.run import run
from tidemill.cli.jobs.show import show

for _command in (show, retry, cancel, run, archive, reprioritise, delete):
    jobs.add_command(_command)

__all__ = ["jobs"]
