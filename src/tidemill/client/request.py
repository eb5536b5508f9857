"""From a call to a job that can be sent: arguments checked, size checked, id made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec

from tidemill.client.options import Options
from tidemill.clock import Clock, Entropy
from tidemill.core.job import NewJob
from tidemill.core.needs import Need
from tidemill.core.uniqueness import Unique
from tidemill.errors import InvalidJob, InvalidPayload, PayloadTooLarge
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.job_events import PayloadLarge
from tidemill.telemetry.signals import Signals

R_co = TypeVar("R_co", covariant=True)

WARN_EVERY = 60.0


class JobRequest(msgspec.Struct, Generic[R_co], frozen=True):
    """A job that was made and not yet sent. It carries its id: sending it again after an
    error never makes a second job."""

    queue: str
    job: NewJob


class RequestMaker:
    """Makes requests. One per client: it remembers when it last warned about a task's size."""

    def __init__(self, clock: Clock, entropy: Entropy, signals: Signals) -> None:
        self._clock, self._signals = clock, signals
        self.new_id = entropy.new_id
        self._warned: dict[str, float] = {}

    @contextmanager
    def moved(self, clock: Clock, entropy: Entropy) -> Iterator[None]:
        """Ids and times from elsewhere meanwhile."""
        before = self._clock, self.new_id, self._warned
        self._clock, self.new_id, self._warned = clock, entropy.new_id, {}
        try:
            yield
        finally:
            self._clock, self.new_id, self._warned = before

    def make(
        self, task: TaskDefinition, options: Options, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> JobRequest[Any]:
        try:
            payload = task.payload.encode(args, kwargs)
        except InvalidPayload as error:
            raise InvalidPayload(f"task {task.name!r}: {error}") from None
        if len(payload) > task.warn_bytes:
            self._mind_size(task, len(payload))
        key: Any = options.key
        if key is not None and not isinstance(key, str):
            key = _computed("key", str, task, key, payload)
        unique: Any = options.unique
        if unique is not None and not isinstance(unique, Unique):
            unique = _computed("unique", Unique, task, unique, payload)
        needs: tuple[Need, ...] = ()
        if task.pools or options.cost is not None:
            needs = _needs(task, options, payload)
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
            batching=None if task.batch is None else task.batch.together,
        )
        return JobRequest(options.queue, job)

    def _mind_size(self, task: TaskDefinition, size: int) -> None:
        if size > task.max_bytes:
            raise PayloadTooLarge(
                f"task {task.name!r}: the payload has {size} bytes, the limit is {task.max_bytes}; "
                "store the data elsewhere and send a reference to it, or raise the task's max_bytes"
            )
        now = self._clock.boot()
        if now - self._warned.get(task.name, -WARN_EVERY) < WARN_EVERY:
            return
        self._warned[task.name] = now
        self._signals.emit(
            PayloadLarge(task=task.name, size=size, warn_bytes=task.warn_bytes, max_bytes=task.max_bytes)
        )


T = TypeVar("T")


def _needs(task: TaskDefinition, options: Options, payload: bytes) -> tuple[Need, ...]:
    """Computed costs and keys are given what the handler will get, as every function of the user's."""
    from tidemill.tasks.costs import needs_of  # with all there is to pools: most jobs need none

    try:
        if not task.pools:
            raise InvalidJob("cost: the task has no pool to spend it in")  # noqa: TRY301 - named with the others
        return needs_of(task, task.payload.by_name(*task.payload.decode(payload)), options.cost)
    except InvalidJob as error:
        raise InvalidJob(f"task {task.name!r}: {error}") from error.__cause__


def _computed(
    field: str, wanted: type[T], task: TaskDefinition, compute: Callable[..., Any], payload: bytes
) -> T:
    """It is given what the handler will get, a dataclass where the caller wrote a dict. The user's own code
    runs here: whatever it raises must name where it came from."""
    arguments = task.payload.by_name(*task.payload.decode(payload))
    try:
        value = compute(**arguments)
    except Exception as error:
        raise InvalidJob(
            f"{field}: the function given to task {task.name!r} raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(value, wanted):
        raise InvalidJob(
            f"{field}: the function given to task {task.name!r} must return {wanted.__name__}, "
            f"returned {type(value).__name__}"
        )
    return value
