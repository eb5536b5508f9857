"""Job requests: builds them from a call and its arguments, and divides them into chunks for bulk enqueues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec

from tidemill.client.job_options import CheckedJobOptions
from tidemill.clock import Clock, Entropy
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.needs import Need
from tidemill.core.queues import InsertResult
from tidemill.core.unique_keys import Unique
from tidemill.errors import InvalidJob, InvalidPayload, PayloadTooLarge
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.job_events import LargePayload
from tidemill.telemetry.listeners import Signals

R_co = TypeVar("R_co", covariant=True)

SIZE_WARNING_SECONDS = 60.0


class JobRequest(msgspec.Struct, Generic[R_co], frozen=True):
    """A job that is built and not sent yet. It has its id, so sending it again after an error creates no
    second job."""

    queue: str
    job: NewJob


class RequestBuilder:
    """Builds job requests; each client has one. It warns about large payloads, at most once a minute for each
    task."""

    def __init__(self, clock: Clock, entropy: Entropy, signals: Signals) -> None:
        self._clock, self._signals = clock, signals
        self.new_id = entropy.new_id
        self._warned: dict[str, float] = {}

    @contextmanager
    def use_clock(self, clock: Clock, entropy: Entropy) -> Iterator[None]:
        """Context manager for tests: inside the block, times come from `clock` and job ids from `entropy`."""
        before = self._clock, self.new_id, self._warned
        self._clock, self.new_id, self._warned = clock, entropy.new_id, {}
        try:
            yield
        finally:
            self._clock, self.new_id, self._warned = before

    def make(
        self,
        task: TaskDefinition,
        options: CheckedJobOptions,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> JobRequest[Any]:
        try:
            payload = task.payload.encode(args, kwargs)
        except InvalidPayload as error:
            raise InvalidPayload(f"task {task.name!r}: {error}") from None
        if len(payload) > task.warn_bytes:
            self._check_size(task, len(payload))
        key: Any = options.key
        if key is not None and not isinstance(key, str):
            key = _compute_option("key", str, task, key, payload)
        unique: Any = options.unique
        if unique is not None and not isinstance(unique, Unique):
            unique = _compute_option("unique", Unique, task, unique, payload)
        needs: tuple[Need, ...] = ()
        if task.pools or options.cost is not None:
            needs = _compute_needs(task, options, payload)
        job = NewJob(
            id=options.id or self.new_id(),
            task=task.name,
            payload=payload,
            priority=options.priority,
            key=key,
            delay=options.delay,
            at=options.at,
            expires=options.expires,
            timeout=options.timeout,
            unique=unique,
            trace=options.trace,
            tags=options.tags,
            needs=needs,
            batching=None if task.batch is None else task.batch.policy,
        )
        return JobRequest(options.queue, job)

    def _check_size(self, task: TaskDefinition, size: int) -> None:
        if size > task.max_bytes:
            raise PayloadTooLarge(
                f"task {task.name!r}: the payload has {size} bytes, the limit is {task.max_bytes}; "
                "store the data elsewhere and send a reference to it, or raise the task's max_bytes"
            )
        now = self._clock.boot()
        if now - self._warned.get(task.name, -SIZE_WARNING_SECONDS) < SIZE_WARNING_SECONDS:
            return
        self._warned[task.name] = now
        self._signals.emit(
            LargePayload(task=task.name, size=size, warn_bytes=task.warn_bytes, max_bytes=task.max_bytes)
        )


T = TypeVar("T")


def _compute_needs(task: TaskDefinition, options: CheckedJobOptions, payload: bytes) -> tuple[Need, ...]:
    """Returns the units that the job needs from each pool. The user's functions get the decoded payload, the
    same values as the handler."""
    from tidemill.tasks.costs import compute_needs  # loads all of pools: most jobs need none

    try:
        if not task.pools:
            raise InvalidJob("cost: the task has no pool to spend it in")  # noqa: TRY301 - the task's name is added below
        return compute_needs(task, task.payload.by_name(*task.payload.decode(payload)), options.cost)
    except InvalidJob as error:
        raise InvalidJob(f"task {task.name!r}: {error}") from error.__cause__


def _compute_option(
    field: str, expected: type[T], task: TaskDefinition, compute: Callable[..., Any], payload: bytes
) -> T:
    """Calls the user's function `compute` with the decoded payload and returns its value.

    Raises InvalidJob if the function raises or does not return `expected`. `field` is the name of the option
    in the message."""
    arguments = task.payload.by_name(*task.payload.decode(payload))
    try:
        value = compute(**arguments)
    except Exception as error:
        raise InvalidJob(
            f"{field}: the function given to task {task.name!r} raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(value, expected):
        raise InvalidJob(
            f"{field}: the function given to task {task.name!r} must return {expected.__name__}, "
            f"returned {type(value).__name__}"
        )
    return value


R = TypeVar("R")

MAX_JOBS_PER_CHUNK, LANED_JOB_WEIGHT = (
    1000,
    4,
)  # a server runs other calls too: one insert of this many takes it five milliseconds
MAX_BYTES_PER_CHUNK = 2 * 1024 * 1024  # the same limit in bytes


class RequestChunk(Generic[R]):
    """Requests that are sent in one call. `groups` has their jobs, one group per queue."""

    def __init__(self, requests: Sequence[JobRequest[R]]) -> None:
        self.requests = requests
        jobs: dict[str, list[NewJob]] = {}
        for request in requests:
            jobs.setdefault(request.queue, []).append(request.job)
        self.groups = tuple(JobGroup(queue, tuple(its)) for queue, its in jobs.items())

    def in_order(self, answers: Sequence[Sequence[InsertResult]]) -> list[InsertResult]:
        """Returns one result per request, in the order of the requests. `answers` has one list per group."""
        by_queue = {group.queue: iter(its) for group, its in zip(self.groups, answers, strict=True)}
        return [next(by_queue[request.queue]) for request in self.requests]


def split_requests(requests: Iterable[JobRequest[R]]) -> Iterator[RequestChunk[R]]:
    if not isinstance(requests, Iterable):
        raise InvalidJob(
            f"enqueue_many: takes a list of jobs, such as [send.job(…)], is {_type_name(requests)}"
        )
    chunk: list[JobRequest[R]] = []
    jobs = size = 0
    for request in requests:
        if not isinstance(request, JobRequest):
            raise InvalidJob(
                f"enqueue_many: takes jobs that a task made, such as [send.job(…)], not "
                f"{_type_name(request)}; sending those before it again doubles none"
            )
        chunk.append(request)
        jobs += _job_weight(request.job)
        size += len(request.job.payload)
        if jobs >= MAX_JOBS_PER_CHUNK or size >= MAX_BYTES_PER_CHUNK:
            yield RequestChunk(chunk)
            chunk, jobs, size = [], 0, 0
    if chunk:
        yield RequestChunk(chunk)


def _job_weight(job: NewJob) -> int:
    is_plain = job.key is None and job.unique is None and not job.needs and job.batching is None
    return 1 if is_plain else LANED_JOB_WEIGHT


def _type_name(value: object) -> str:
    """Returns the name of the value's type. Error messages show it instead of the value, which may be large
    or a secret."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
