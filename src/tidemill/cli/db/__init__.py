"""`tidemill db`: looking after the store itself. One file per command."""

from __future__ import annotations

from tidemill.cli.db.backup import backup
from tidemill.cli.db.check import check
from tidemill.cli.db.compact import compact
from tidemill.cli.db.copy import copy
from tidemill.cli.db.group import db
from tidemill.cli.db.info import info

for _command in (info, check, backup, copy, compact):
    db.add_command(_command)

__all__ = ["db"]
