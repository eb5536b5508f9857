"""The commands that make of the rows in Redis what a step made of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tidemill.core.needs import group_of_lane
from tidemill.stores.redis.wire import Argument

AT_ONCE = 2000
"""Arguments of one command: a script cannot hand on more than about 8 000."""

FORGOTTEN = b"-"
"""In the place of a lane's row: its last job has left. If another has come meanwhile, it begins anew."""


class Writes:
    """Gathers what goes to the same key, for one command each. Removing comes first: what is changed may be
    taken out of an order and put in again."""

    def __init__(self) -> None:
        self._removed: dict[tuple[str, str], list[Argument]] = defaultdict(list)
        self._added: dict[tuple[str, str], list[Argument]] = defaultdict(list)
        self._tallies: Counter[tuple[str, str]] = Counter()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._others: list[tuple[Argument, ...]] = []
        self._lanes: dict[tuple[str, str], bytes] = {}

    def add(self, key: str, score: float, member: Argument) -> None:
        self._added["ZADD", key] += (repr(float(score)), member)

    def remove(self, key: str, member: Argument) -> None:
        self._removed["ZREM", key].append(member)

    def include(self, key: str, member: Argument) -> None:
        self._added["SADD", key].append(member)

    def exclude(self, key: str, member: Argument) -> None:
        self._removed["SREM", key].append(member)

    def set(self, key: str, field: Argument, value: Argument) -> None:
        self._added["HSET", key] += (field, value)

    def unset(self, key: str, field: Argument) -> None:
        self._removed["HDEL", key].append(field)

    def count(self, key: str, field: str, by: int) -> None:
        self._counts[key, field] += by

    def tally(self, key: str, field: str, by: int) -> None:
        """A count that goes when nothing is left."""
        self._tallies[key, field] += by

    def command(self, *words: Argument) -> None:
        """Of Redis, or one of commit.lua's own; its second word is the key."""
        self._others.append(words)

    def touch(self, queue: str, lane: str, row: bytes = b"") -> None:
        """Jobs come or go in that lane, or its row changes."""
        self._lanes[queue, lane] = row or self._lanes.get((queue, lane), b"")

    def words(self) -> Iterator[Argument]:
        commands = [*self._commands()]
        yield len(commands)
        for command in commands:
            yield len(command)
            yield from command
        yield len(self._lanes)
        for (queue, lane), row in self._lanes.items():
            yield from (queue, lane, group_of_lane(lane), row)

    def _commands(self) -> Iterator[tuple[Argument, ...]]:
        for gathered in (self._removed, self._added):
            for (command, key), arguments in gathered.items():
                for at in range(0, len(arguments), AT_ONCE):
                    yield command, key, *arguments[at : at + AT_ONCE]
        for command, counts in (("HINCRBY", self._counts), ("TALLY", self._tallies)):
            yield from ((command, key, field, by) for (key, field), by in counts.items() if by)
        yield from self._others
