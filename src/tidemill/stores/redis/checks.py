"""What must still be so when a step is written, for commit.lua."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tidemill.engine import wants
from tidemill.engine.changes import Changes
from tidemill.engine.wants import Rows
from tidemill.stores.redis import keys
from tidemill.stores.redis.looks import AT_ONCE, Words
from tidemill.stores.redis.records import TIME
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


def heads(changes: Changes, rows: Rows) -> Iterator[Words]:
    """A lane is shut because its head was refused. One more urgent that has come meanwhile was not asked."""
    for (queue, lane), row in changes.lanes.items():
        before = rows.get(wants.LaneOf(queue, lane))
        if row is not None and row.shut is not None and before is not None and before.jobs.first:
            _, due, seq, id_ = before.jobs.first[0]
            yield "head", keys.lane(queue, lane), TIME.pack(due) + seq.to_bytes(6) + id_.encode()
