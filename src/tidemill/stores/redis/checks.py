"""What must still be so when a step is written, for commit.lua."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tidemill.stores.redis.looks import AT_ONCE, Words
from tidemill.stores.redis.wire import Argument

_TOGETHER = ("hash", "none")
"""Fields of one hash, compared by one command."""


def gathered(checks: Iterable[Words]) -> list[Words]:
    together: dict[tuple[Argument, Argument], list[Argument]] = defaultdict(list)
    found: list[Words] = []
    for check in dict.fromkeys(checks):
        if check[0] in _TOGETHER:
            together[check[0], check[1]] += check[2:]
        else:
            found.append(check)
    for kind, fields in together.items():
        found += [(*kind, *fields[at : at + AT_ONCE]) for at in range(0, len(fields), AT_ONCE)]
    return found
