"""What is asked of look.lua for each want."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemill.core.calls import UNRIPE
from tidemill.engine import wants
from tidemill.engine.wants import Want
from tidemill.stores.redis import arrivals, keys
from tidemill.stores.redis.bounds import STEPPED
from tidemill.stores.redis.wire import Argument

AT_ONCE = 1000

Words = tuple[Argument, ...]


class Questions:
    """Rows of one kind are asked for together: most of a look is jobs, by their ids."""

    def __init__(self, wanted: Mapping[Want, int]) -> None:
        self._asked: list[tuple[Words, Sequence[Want]]] = []
        by_key: dict[str, list[tuple[Argument, Want]]] = defaultdict(list)
        for want, count in wanted.items():
            if isinstance(want, wants.JobOf):
                by_key[keys.JOBS].append((want.id, want))
            elif (field := field_of(want)) is not None:
                by_key[field[0]].append((field[1], want))
            else:
                self._asked.append((words_of(want, count), (want,)))
        for key, fields in by_key.items():
            question = ("jobs",) if key == keys.JOBS else ("call", "HMGET", key)
            for at in range(0, len(fields), AT_ONCE):
                some = fields[at : at + AT_ONCE]
                words = (*question, *(field for field, _ in some))
                self._asked.append((words, [want for _, want in some]))

    def words(self) -> Iterator[Argument]:
        for words, _ in self._asked:
            yield len(words)
            yield from words

    def answered(self, answers: Sequence[Any]) -> Iterator[tuple[Want, Any]]:
        for (words, asked), answer in zip(self._asked, answers, strict=True):
            if words[0] == "jobs" or words[1] == "HMGET":
                yield from zip(asked, answer, strict=True)
            else:
                yield asked[0], answer


def words_of(want: Want, count: int) -> Words:  # noqa: C901, PLR0912 - a line for each kind
    match want:
        case wants.QueueOf(name):
            return "queue", name
        case wants.LaneOf(queue, lane):
            return "lane", queue, lane, count
        case wants.OpenLanes(queue, group):
            return "open", queue, group, count
        case wants.Scheduled(queue):
            return "scheduled", queue, count
        case wants.Wakes(queue):
            return "wakes", queue, count
        case wants.Ahead(queue, limit, lanes):
            return "ahead", queue, limit, lanes, keys.shut(queue, keys.place(UNRIPE))
        case wants.Overdue(dead):
            return "overdue", STEPPED, *dead
        case wants.HoldersOf(queue, key):
            return "call", "ZRANGE", keys.unique(queue, key), 0, -1
        case wants.SuccessorsOf(job):
            return "call", "ZRANGE", keys.successors(job), 0, -1
        case wants.RunningOf(worker):
            return "call", "SMEMBERS", keys.held(worker)
        case wants.ShutLanes(queue, place):
            return "call", "SMEMBERS", keys.shut(queue, keys.place(place))
        case wants.WaitingFor(place):
            return "call", "HKEYS", keys.waiting(keys.place(place))
        case wants.PoolNames():
            return "call", "HKEYS", keys.POOLS
        case wants.PlacesOf(pool):
            return "call", "HKEYS", keys.accounts(pool)
        case wants.ClaimsOn():
            return "call", "HGETALL", keys.RESERVED
        case wants.LeftOver():
            return "call", "HGETALL", keys.LEFT
        case wants.UnheardOf(claim):
            return "call", "ZSCORE", keys.UNHEARD, keys.claim(claim)
        case wants.StepsOf(job):
            return "call", "HGETALL", keys.steps(job)
        case wants.ArrivalOf(seq):
            return "call", "XRANGE", keys.ARRIVALS, arrivals.name_of(seq), arrivals.name_of(seq)
        case wants.WorkerOf(id_):
            return "worker", id_
    raise AssertionError(want)


def field_of(want: Want) -> tuple[str, Argument] | None:
    """Rows that are one field of a hash."""
    match want:
        case wants.Recalled(request):
            return keys.REMEMBERED, request
        case wants.RunningIn(queue, key):
            return keys.RUNNING_IN, keys.running_in(queue, key)
        case wants.CountOf(queue, state):
            return keys.COUNTS, keys.count(state, queue)
        case wants.PoolOf(name):
            return keys.POOLS, name
        case wants.AccountOf((pool, key)):
            return keys.accounts(pool), key or ""
        case wants.ReservedBy(claim):
            return keys.RESERVED, keys.claim(claim)
        case wants.ReservedAt(place):
            return keys.RESERVED_AT, keys.place(place)
        case wants.CourseOf(kind, id_):
            return keys.courses(kind), id_
    return None
