"""How much one script takes on. Everybody else waits meanwhile: what is larger goes in several, each of them
whole.

A megabyte of records costs the server 2 ms to copy, a plain job 0.01 ms and one that the engine moves 0.03.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tidemill.core.job import NewJob
from tidemill.stores.redis import scripts
from tidemill.stores.redis.shard import Shard

JOBS, STEPPED = 250, 125
"""Plain jobs that a script settles and claims, and others, which the engine moves."""
BYTES = 1024 * 1024
"""Of their records; `lua/parts/many.lua` has the same."""
INSERTED, INSERTED_BYTES = 1000, 2 * BYTES
"""Plain jobs that come in: nothing is read of them."""
FEW = 4
"""So many are not worth being weighed."""

WEIGH = scripts.load("weigh")

T = TypeVar("T")
Weight = tuple[int, int]
"""Jobs, and bytes."""


def weight_of(jobs: Iterable[NewJob]) -> Weight:
    sizes = [len(job.payload) for job in jobs]
    return len(sizes), sum(sizes)


def runs(items: Iterable[T], weigh: Callable[[T], Weight], most: Weight) -> Iterator[list[T]]:
    """One after the other, as many together as `most` has room for; one that is larger is alone."""
    run: list[T] = []
    jobs = size = 0
    for item in items:
        more, bytes_ = weigh(item)
        if run and (jobs + more > most[0] or size + bytes_ > most[1]):
            yield run
            run, jobs, size = [], 0, 0
        run.append(item)
        jobs, size = jobs + more, size + bytes_
    if run:
        yield run


async def fitting(shard: Shard, ids: Sequence[str]) -> int:
    """How many of these jobs, from the first on, one step of the engine may take on."""
    some = ids[:STEPPED]
    return len(some) if len(some) <= FEW else int(await shard.run(WEIGH, *some, repeatable=True))
