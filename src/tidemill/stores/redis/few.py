"""Where the jobs are that a filter means, if they are few of all: the orders of their states say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.core.filters import Filter
from tidemill.core.states import FINAL, State
from tidemill.stores.redis import keys
from tidemill.stores.redis.queue_views import counts
from tidemill.stores.redis.scanning import fields, members, ready_lanes
from tidemill.stores.redis.shard import Shard

FEW = 0.25
"""Of all jobs: so many places are collected and sorted as fast as all jobs are walked through."""
FEW_GOING_ON = 0.02
"""The same where a page follows another: the places are collected anew for every page."""
FEW_LANES = 200
"""Each is an order of its own, and a question more."""
COLLECTED = 20_000
"""More places than these are not collected for a page that somebody waits for."""


async def few(shard: Shard, wanted: Filter, behind: int | None, *, bounded: bool) -> list[bytes] | None:
    """Members of orders, the jobs in the states that are meant, where they are few; None where all are to be
    walked through. Only jobs that move from one order on to one that is read later can be told apart
    safely: so at most one of the states is one that is left again."""
    states = frozenset(State if wanted.states is None else wanted.states)
    by_end = wanted.time == "finished" and (wanted.since is not None or wanted.until is not None)
    states &= FINAL if by_end else states
    known = await counts(shard)
    meant = [name for name in known if wanted.queue in (None, name)]
    jobs = sum(known[name].get(state, 0) for name in meant for state in states)
    if not jobs:
        return []
    if by_end and bounded:
        return await _by_end(shard, wanted, meant, states)
    share = FEW if behind is None or bounded else FEW_GOING_ON
    most = share * sum(sum(of_queue.values()) for of_queue in known.values())
    if jobs > (min(most, COLLECTED) if bounded else most):
        return None
    if len(states - FINAL) > 1 or State.WAITING in states:
        return None
    if State.READY in states and await _lanes(shard, meant) > FEW_LANES:
        return None
    found: dict[bytes, None] = {}
    for state in sorted(states, key=lambda state: state in FINAL):
        for name in meant:
            found |= dict.fromkeys(await _members(shard, name, state, at_once=bounded))
    return list(found)


async def _by_end(
    shard: Shard, wanted: Filter, queues: Sequence[str], states: frozenset[State]
) -> list[bytes] | None:
    """So few that each order is read in one piece."""
    since = b"-inf" if wanted.since is None else repr(float(wanted.since))
    until = b"+inf" if wanted.until is None else f"({float(wanted.until)!r}"
    orders = [shard.key(order) for order in _ended(queues, states)]
    if sum([int(await shard.ask(b"ZCOUNT", order, since, until)) for order in orders]) > COLLECTED:
        return None
    found: dict[bytes, None] = {}
    for order in orders:
        found |= dict.fromkeys(await shard.ask(b"ZRANGEBYSCORE", order, since, until))
    return list(found)


def _ended(queues: Sequence[str], states: frozenset[State]) -> Iterator[str]:
    for queue in queues:
        for state in sorted(states):
            yield keys.ended(queue, state)
            yield keys.ended_parts(queue, state)


async def _lanes(shard: Shard, queues: Sequence[str]) -> int:
    return sum([int(await shard.ask(b"HLEN", shard.key(keys.lanes(queue)))) for queue in queues])


async def _members(shard: Shard, queue: str, state: State, *, at_once: bool) -> list[bytes]:
    """`at_once`: so few are known to be there that an order may be read in one piece."""

    async def read(order: str) -> list[bytes]:
        return await shard.ask(b"ZRANGE", shard.key(order), 0, -1) if at_once else await members(shard, order)

    if state is State.READY:
        lanes = await ready_lanes(shard, queue)
        return [member[8:] for lane in lanes for member in await read(keys.lane(queue, lane))]
    if state is State.SCHEDULED:
        return await read(keys.scheduled(queue))
    if state is State.RUNNING:
        return list({name: None async for name, _ in fields(shard, keys.running(queue))})
    return [*await read(keys.ended(queue, state)), *await read(keys.ended_parts(queue, state))]
