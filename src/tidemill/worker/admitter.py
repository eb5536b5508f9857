"""Turns arrivals into jobs, with the same checks as an enqueue. An arrival is a row that another program
wrote into the store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence

import msgspec

from tidemill.contract.jobs import Admission, Arrival, RejectedArrival
from tidemill.contract.store import Store
from tidemill.core.jobs import Error, JobGroup, NewJob, problem_with_group
from tidemill.core.queues import HOUR_SECONDS
from tidemill.core.transitions import UNKNOWN_TASK_SECONDS
from tidemill.core.unique_keys import Unique
from tidemill.errors import InvalidJob
from tidemill.tasks.costs import compute_needs
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.payload import canonical_json
from tidemill.worker.attempt import replace_unstorable
from tidemill.worker.outcomes import describe_error

MAX_ARRIVALS_PER_PAGE = 500


class ArrivalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options that an arrival may set.

    - `delay`: seconds from the arrival.
    - `at`: a wall time.
    - `unique`: a unique key, or an object with the fields of `Unique`."""

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
    """Admits the arrivals whose task this worker knows. Arrivals of unknown tasks stay in the store for other
    workers, and are refused after 24 hours."""

    def __init__(self, store: Store, tasks: Mapping[str, TaskDefinition]) -> None:
        self._store, self._tasks = store, tasks
        self.admitted = 0
        self._last_seq = 0
        self._unknown: dict[int, float] = {}
        self._unknown_this_pass: dict[int, float] = {}
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()

    async def admit(self) -> bool:
        """Admits one page of at most 500 arrivals. Returns True if the page was full, because more arrivals
        may wait.

        After a full page, the next call continues behind it. Otherwise the next call starts with the first
        arrival."""
        async with self._lock:
            return await self._admit_page()

    async def _admit_page(self) -> bool:
        arrivals = await self._store.arrivals(MAX_ARRIVALS_PER_PAGE, self._last_seq)
        self._last_seq = arrivals[-1].seq if len(arrivals) == MAX_ARRIVALS_PER_PAGE else 0
        self._note_unknown(arrivals)
        if not arrivals:
            return False
        now = (await self._store.read_clock()).wall
        decisions = [self._decide(arrival, now) for arrival in arrivals]
        admissions = [admission for admission in decisions if admission is not None]
        if admissions:
            self.admitted += await self._store.admit(admissions)
        return len(arrivals) == MAX_ARRIVALS_PER_PAGE

    def _note_unknown(self, arrivals: Sequence[Arrival]) -> None:
        """Records when this worker first saw each arrival of an unknown task. `arrivals` is one page."""
        now = self._loop.time()
        for arrival in arrivals:
            if arrival.task not in self._tasks:
                self._unknown_this_pass[arrival.seq] = self._unknown.setdefault(arrival.seq, now)
        if len(arrivals) < MAX_ARRIVALS_PER_PAGE:
            self._unknown, self._unknown_this_pass = self._unknown_this_pass, {}

    def _decide(self, arrival: Arrival, now: float) -> Admission | None:
        # A wall clock that jumps forward must not cause an early refusal.
        if self._loop.time() - self._unknown.get(arrival.seq, -math.inf) < HOUR_SECONDS:
            return None
        return decide_admission(arrival, self._tasks, now)


def decide_admission(arrival: Arrival, tasks: Mapping[str, TaskDefinition], now: float) -> Admission | None:
    if not arrival.id:
        arrival = msgspec.structs.replace(arrival, id=_make_arrival_id(arrival))
    task = tasks.get(arrival.task)
    if task is None:
        if now - arrival.arrived < UNKNOWN_TASK_SECONDS:
            return None
        return _refuse(
            arrival, "default", "UnknownTask", f"task: no worker knew {arrival.task!r} for 24 hours"
        )
    try:
        options = msgspec.json.decode(arrival.options or b"{}", type=ArrivalOptions)
    except Exception as error:  # noqa: BLE001 - too deep a nesting is a RecursionError
        return _refuse(arrival, task.queue, "InvalidJob", f"options: {error}".replace("`$.", "`"))
    try:
        task.payload.check(arrival.payload)
        arrival = msgspec.structs.replace(arrival, payload=canonical_json(arrival.payload))
    except Exception as error:  # noqa: BLE001 - a model's own validators may raise anything
        return _refuse(arrival, task.queue, "InvalidPayload", f"payload: {describe_error(error).message}")
    return _accept(arrival, task, options)


def _make_arrival_id(arrival: Arrival) -> str:
    """Returns the job id for an arrival that has no id. Repeated calls return the same id."""
    # With the time, because sequence numbers restart in a copied store.
    return f"arrival-{arrival.seq}-{arrival.arrived:.3f}"


def _accept(arrival: Arrival, task: TaskDefinition, options: ArrivalOptions) -> Admission:
    queue = options.queue or task.queue
    if len(arrival.payload) > task.max_bytes:
        sentence = f"payload: has {len(arrival.payload)} bytes, the task takes at most {task.max_bytes}"
        return _refuse(arrival, task.queue, "PayloadTooLarge", sentence)
    try:
        job = _build_job(arrival, task, options)
        problem = problem_with_group(JobGroup(queue, (job,)))
    except InvalidJob as error:
        return _refuse(arrival, task.queue, "InvalidJob", str(error))
    except Exception as error:  # noqa: BLE001 - the task's own key functions may raise anything
        described = describe_error(error)
        return _refuse(arrival, task.queue, described.type, f"key or unique: {described.message}")
    if problem:
        return _refuse(arrival, task.queue, "InvalidJob", problem)
    return Admission(arrival, queue, job)


def _build_job(arrival: Arrival, task: TaskDefinition, options: ArrivalOptions) -> NewJob:
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
    # A delay counts from the arrival, not from its admission.
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
        needs=compute_needs(task, arguments) if task.pools else (),
        batching=None if task.batch is None else task.batch.policy,
    )


def _refuse(arrival: Arrival, queue: str, kind: str, sentence: str) -> Admission:
    return Admission(
        arrival, queue, RejectedArrival(queue=queue, error=Error(kind, replace_unstorable(sentence)))
    )
