"""Turns requests written straight into the store into jobs, checked like any other enqueue."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence

import msgspec

from tidemill.contract.jobs import Admission, Arrival, Refused
from tidemill.contract.store import Store
from tidemill.core.job import Error, Group, NewJob, problem_with
from tidemill.core.queues import HOUR
from tidemill.core.transitions import UNKNOWN_TASK_PATIENCE
from tidemill.core.uniqueness import Unique
from tidemill.errors import InvalidJob
from tidemill.tasks.costs import needs_of
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.payload import canonical
from tidemill.worker.attempt import storable
from tidemill.worker.translate import describe

AT_ONCE = 500


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an arrival may ask for. `unique` is a key, or an object as `Unique` has it."""

    queue: str | None = None
    priority: int | None = None
    delay: float = 0.0
    at: float | None = None
    expires: float | None = None
    timeout: float | None = None
    unique: str | Unique | None = None
    key: str | None = None
    trace: str | None = None
    tags: tuple[str, ...] = ()


class Admitter:
    """An arrival of a task this worker does not know is left for another, and refused after a day,
    of which this worker has seen an hour itself: a stepped clock alone refuses nothing."""

    def __init__(self, store: Store, tasks: Mapping[str, TaskDefinition]) -> None:
        self._store, self._tasks = store, tasks
        self.admitted = 0
        self._seen = 0
        self._unknown: dict[int, float] = {}
        self._unknown_this_round: dict[int, float] = {}
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    async def admit(self) -> bool:
        """One page, from where the last one ended: arrivals left for others hide nothing behind
        them. True when more may be waiting. One at a time: who finds nothing left has counted what
        the one before admitted."""
        async with self._turn:
            return await self._admit_page()

    async def _admit_page(self) -> bool:
        arrivals = await self._store.arrivals(AT_ONCE, self._seen)
        self._seen = arrivals[-1].seq if len(arrivals) == AT_ONCE else 0
        self._note_unknown(arrivals)
        if not arrivals:
            return False
        now = (await self._store.read_clock()).wall
        judged = [self._judge(arrival, now) for arrival in arrivals]
        admissions = [admission for admission in judged if admission is not None]
        if admissions:
            self.admitted += await self._store.admit(admissions)
        return len(arrivals) == AT_ONCE

    def _note_unknown(self, arrivals: Sequence[Arrival]) -> None:
        """A round ends with a page that is not full: what it did not come across is gone."""
        now = self._loop.time()
        for arrival in arrivals:
            if arrival.task not in self._tasks:
                self._unknown_this_round[arrival.seq] = self._unknown.setdefault(arrival.seq, now)
        if len(arrivals) < AT_ONCE:
            self._unknown, self._unknown_this_round = self._unknown_this_round, {}

    def _judge(self, arrival: Arrival, now: float) -> Admission | None:
        if self._loop.time() - self._unknown.get(arrival.seq, -math.inf) < HOUR:
            return None
        return judge(arrival, self._tasks, now)


def judge(arrival: Arrival, tasks: Mapping[str, TaskDefinition], now: float) -> Admission | None:
    if not arrival.id:
        arrival = msgspec.structs.replace(arrival, id=_own_id(arrival))
    task = tasks.get(arrival.task)
    if task is None:
        if now - arrival.arrived < UNKNOWN_TASK_PATIENCE:
            return None
        return _refused(
            arrival, "default", "UnknownTask", f"task: no worker knew {arrival.task!r} for 24 hours"
        )
    try:
        options = msgspec.json.decode(arrival.options or b"{}", type=Options)
    except Exception as error:  # noqa: BLE001 - too deep a nesting is a RecursionError
        return _refused(arrival, task.queue, "InvalidJob", f"options: {error}".replace("`$.", "`"))
    try:
        task.payload.check(arrival.payload)
        arrival = msgspec.structs.replace(arrival, payload=canonical(arrival.payload))
    except Exception as error:  # noqa: BLE001 - a model's own validators may raise anything
        return _refused(arrival, task.queue, "InvalidPayload", f"payload: {describe(error).message}")
    return _accepted(arrival, task, options)


def _own_id(arrival: Arrival) -> str:
    """The same however often it is judged, so it still makes one job. Numbers begin anew in a store that
    was copied: the time tells them apart."""
    return f"arrival-{arrival.seq}-{arrival.arrived:.3f}"


def _accepted(arrival: Arrival, task: TaskDefinition, options: Options) -> Admission:
    queue = options.queue or task.queue
    if len(arrival.payload) > task.max_bytes:
        sentence = f"payload: has {len(arrival.payload)} bytes, the task takes at most {task.max_bytes}"
        return _refused(arrival, task.queue, "PayloadTooLarge", sentence)
    try:
        job = _job(arrival, task, options)
        problem = problem_with(Group(queue, (job,)))
    except InvalidJob as error:
        return _refused(arrival, task.queue, "InvalidJob", str(error))
    except Exception as error:  # noqa: BLE001 - the task's own key functions may raise anything
        described = describe(error)
        return _refused(arrival, task.queue, described.type, f"key or unique: {described.message}")
    if problem:
        return _refused(arrival, task.queue, "InvalidJob", problem)
    return Admission(arrival, queue, job)


def _job(arrival: Arrival, task: TaskDefinition, options: Options) -> NewJob:
    arguments = task.payload.by_name(*task.payload.decode_strictly(arrival.payload))
    unique: Unique | str | None = options.unique
    if unique is None and task.unique is not None:
        unique = task.unique(**arguments) if callable(task.unique) else task.unique
    key = options.key
    if key is None and task.key is not None:
        key = task.key(**arguments)
    if not isinstance(key, str | None):
        raise TypeError(f"the task's key is {key!r}, which is not text")
    if not isinstance(unique, str | Unique | None):
        raise TypeError(f"the task's unique is {unique!r}, which is neither a Unique nor text")
    # A delay counts from the arrival, not from when a worker got round to it.
    at = options.at if options.at is not None or not options.delay else arrival.arrived + options.delay
    return NewJob(
        id=arrival.id,
        task=arrival.task,
        payload=arrival.payload,
        priority=task.priority if options.priority is None else options.priority,
        key=key,
        delay=options.delay if not math.isfinite(options.delay) or options.delay < 0 else 0.0,
        at=at,
        expires=task.expires if options.expires is None else options.expires,
        timeout=options.timeout,
        unique=Unique(unique) if isinstance(unique, str) else unique,
        trace=options.trace,
        tags=options.tags,
        needs=needs_of(task, arguments) if task.pools else (),
        batching=None if task.batch is None else task.batch.together,
    )


def _refused(arrival: Arrival, queue: str, kind: str, sentence: str) -> Admission:
    return Admission(arrival, queue, Refused(queue=queue, error=Error(kind, storable(sentence))))
