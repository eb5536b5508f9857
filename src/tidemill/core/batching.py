"""Batches: when waiting jobs start a shared call, and how many jobs a call takes. Also splits a list of items
into chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tidemill.core.needs import LANE_SEPARATOR, Need, Units
from tidemill.core.validation import is_integer
from tidemill.errors import ConfigurationError
from tidemill.times import parse_time

SUSPECT_CRASHES = 1
"""The crash count of a job that ran with others when its worker died: another job may have caused it."""
MAX_BATCH_ITEMS = 10_000
"""A claim reads as many jobs as its call may take, so this bounds its time."""


class BatchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How the jobs of a batch task share calls.

    - `max_items`: the most jobs in a call.
    - `max_units`: by unit, the most units of all jobs of a call together.
    - `linger`: how many seconds a job waits for more jobs.
    - `call`: by pool, the fixed cost of a call, in addition to the needs of its jobs."""

    max_items: int
    linger: float = 0.0
    max_units: Units = msgspec.field(default_factory=dict)
    call: dict[str, Units] = msgspec.field(default_factory=dict)

    def problem(self) -> str | None:
        if not 1 <= self.max_items <= MAX_BATCH_ITEMS:
            return f"max_items: must lie between 1 and {MAX_BATCH_ITEMS}, is {self.max_items}"
        if not (math.isfinite(self.linger) and self.linger >= 0):
            return f"linger: must be 0 or more seconds, is {self.linger}"
        for unit, amount in self.max_units.items():
            if not (math.isfinite(amount) and amount > 0):
                return f"max_units: {unit} must be above 0, is {amount}"
        for pool, units in self.call.items():
            for unit, amount in units.items():
                if not (math.isfinite(amount) and amount >= 0):
                    return f"call: {unit} of pool {pool!r} must be 0 or more, is {amount}"
        return None


class PooledJob(Protocol):
    """A job that may need pools."""

    @property
    def needs(self) -> tuple[Need, ...]: ...


class BatchCandidate(PooledJob, Protocol):
    """A ready job in a lane of a batch task. After a failure a batch may be split into parts. `part` is the
    name of the job's part, '' if its batch was not split."""

    @property
    def due(self) -> float: ...
    @property
    def crashes(self) -> int: ...
    @property
    def part(self) -> str: ...


class BatchMember(Protocol):
    """A job that was claimed for a call. `call` is the id of the call's first job, '' for a job that shares
    no call."""

    @property
    def call(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def due(self) -> float: ...
    @property
    def seq(self) -> int: ...


P = TypeVar("P", bound=BatchMember)


def seconds_until_full(rule: BatchPolicy, waiting: Sequence[BatchCandidate], now: float) -> float:
    """Returns the seconds until the first jobs of a lane should start a call; 0 means now. A call starts when
    it is full, or when its oldest job has waited for `linger` seconds.

    - `waiting`: the first `max_items` jobs of the lane, in order.
    - `now`: the wall time."""
    if len(waiting) >= rule.max_items or waiting[0].part or waiting[0].crashes:
        return 0.0
    if max_call_jobs(rule, waiting) < len(waiting) or _is_full(rule, waiting):
        return 0.0
    oldest = min(job.due for job in waiting)
    # Jobs that are due later were stored before the wall clock was set back.
    return 0.0 if oldest > now else max(0.0, oldest + rule.linger - now)


def missing_jobs(rule: BatchPolicy, waiting: Sequence[BatchCandidate]) -> int:
    """Returns how many more jobs have to arrive until the call starts at once. The result is 1 if the policy
    limits units, because one job may fill the call."""
    return 1 if rule.max_units else rule.max_items - len(waiting)


def max_call_jobs(rule: BatchPolicy, waiting: Sequence[BatchCandidate]) -> int:
    """Returns how many of the first `waiting` jobs may share one call. After a crash, only jobs of the same
    part of the split batch share a call."""
    total: Units = {}
    for at, job in enumerate(waiting[: rule.max_items]):
        if at and not _may_share(waiting[0], job):
            return at
        _add_units(total, _largest_units(job.needs))
        if at and any(total.get(unit, 0.0) > most for unit, most in rule.max_units.items()):
            return at
    return min(len(waiting), rule.max_items)


def part_after_crash(job_id: str, part: str, call: str) -> str:
    """Returns the name of the new part for a job whose worker died during a shared call. The jobs of the call
    are split into two parts, to find the job that caused the crash.

    - `part`: the job's part until now, '' for none.
    - `call`: the id of the shared call."""
    prefix = part or call
    # Not a CRC: it would never separate some pairs of jobs.
    digest = blake2b(f"{prefix}/{job_id}".encode(), digest_size=1).digest()
    return f"{prefix}/{digest[0] & 1}"


def _may_share(first: BatchCandidate, job: BatchCandidate) -> bool:
    """True if two jobs of one lane may share a call. Jobs that crashed once share a call only if their batch
    was split. A job that crashed more often runs alone."""
    if first.crashes == job.crashes == SUSPECT_CRASHES:
        return bool(first.part)
    return not first.crashes and not job.crashes


def call_needs(rule: BatchPolicy, jobs: Sequence[PooledJob]) -> tuple[Need, ...]:
    """Returns the needs of one call with these jobs: the fixed cost of the call plus the needs of each job.
    All jobs must need the same pools."""
    totals = {(need.pool, need.key): dict(rule.call.get(need.pool, {})) for need in jobs[0].needs}
    for job in jobs:
        for need in job.needs:
            _add_units(totals[need.pool, need.key], need.units)
    return tuple(Need(pool, key, units) for (pool, key), units in totals.items())


def largest_fitting_count(count: int, fits: Callable[[int], bool]) -> int:
    """Returns the largest number up to `count` for which `fits` returns True; 0 if not even 1 fits."""
    if fits(count):
        return count
    if count == 1 or not fits(1):
        return 0
    low, high = 1, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def group_by_call(jobs: Sequence[P]) -> list[P]:
    """Returns the claimed jobs, with jobs of the same call next to each other. The order of the calls does
    not change."""
    calls: dict[str, list[P]] = {}
    for job in jobs:
        calls.setdefault(job.call or f"{LANE_SEPARATOR}{job.seq}", []).append(job)
    return [
        job
        for call in calls.values()
        for job in sorted(call, key=lambda job: (job.priority, job.due, job.seq))
    ]


def _is_full(rule: BatchPolicy, waiting: Sequence[BatchCandidate]) -> bool:
    total: Units = {}
    for job in waiting:
        _add_units(total, _largest_units(job.needs))
    return any(total.get(unit, 0.0) >= most for unit, most in rule.max_units.items())


def _add_units(total: Units, more: Units) -> None:
    for unit, amount in more.items():
        total[unit] = total.get(unit, 0.0) + amount


def _largest_units(needs: tuple[Need, ...]) -> Units:
    """Returns, for each unit, the largest amount that the job needs of any pool. The amounts are not added,
    because several pools may count the same unit."""
    units: Units = {}
    for need in needs:
        for unit, amount in need.units.items():
            units[unit] = max(units.get(unit, 0.0), amount)
    return units


T = TypeVar("T")


class ItemChunk(NamedTuple, Generic[T]):
    """A chunk of items with an id for log lines. The id has the form `batch_{milliseconds}_{number}`."""

    id: str
    items: list[T]


def split_into_chunks(items: Iterable[T], size: int, *, at: float | datetime) -> list[ItemChunk[T]]:
    """Splits items into chunks of `size` items, in order. Returns a pair of id and items for each chunk. The
    last chunk may be shorter. `at` is the time that becomes part of the ids.

        chunks = split_into_chunks(songs, 10, at=time.time())
        await app.enqueue_many(analyze.job(correlationId=id, songs=songs) for id, songs in chunks)"""
    if not is_integer(size, 1):
        raise ConfigurationError(f"size: must be a whole number, 1 or more, is {size!r}")
    if isinstance(items, str | bytes):
        raise ConfigurationError(f"items: must be a list of things, is one {type(items).__name__}; wrap it")
    time = parse_time("at", at, ConfigurationError)
    if not math.isfinite(time):
        raise ConfigurationError(f"at: must be a time, is {time}")
    listed = list(items)
    begin = f"batch_{math.floor(time * 1000)}"
    return [
        ItemChunk(f"{begin}_{number}", listed[start : start + size])
        for number, start in enumerate(range(0, len(listed), size), start=1)
    ]
