"""`tidemill pools`: what providers meter, how full it is, and what is set on it. One file per command."""

from __future__ import annotations

from tidemill.cli.pools.close import close
from tidemill.cli.pools.info import info
from tidemill.cli.pools.listing import pools
from tidemill.cli.pools.open import open_
from tidemill.cli.pools.set import set_
from tidemill.cli.pools.unset import unset

for _command in (info, set_, unset, close, open_):
    pools.add_command(_command)

__all__ = ["pools"]
