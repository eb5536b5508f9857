"""The options of one job: the keywords of `using`, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

import msgspec

from tidemill.core.jobs import DEFAULT_PRIORITY, JobGroup, NewJob, problem_with_group
from tidemill.core.unique_keys import Unique
from tidemill.core.validation import refuse_unknown_options
from tidemill.errors import InvalidJob
from tidemill.tasks.definition import TaskDefinition
from tidemill.times import parse_seconds, parse_time

if TYPE_CHECKING:
    from tidemill.tasks.pools import Cost


KeyFunction = Callable[..., str]
UniqueFunction = Callable[..., Unique]


class JobOptions(TypedDict, total=False):
    """The keyword options of `task.using(…)`, for one job. Durations are seconds or timedeltas.

    - `at`: a Unix time or an aware datetime.
    - `cost`: replaces the cost of the task; None keeps it.
    - `connection`: your own connection to the store's database. The job commits or rolls back with its
      transaction."""

    priority: int
    delay: float | timedelta
    at: float | datetime
    expires: float | timedelta | None
    unique: Unique | None
    key: str | None
    cost: Cost | None
    timeout: float | timedelta
    queue: str
    id: str
    trace: str
    tags: list[str] | tuple[str, ...]
    connection: Any


class CheckedJobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Job options after validation. `key` and `unique` may be functions; the client calls them with the
    task's arguments."""

    queue: str
    priority: int = DEFAULT_PRIORITY
    delay: float = 0.0
    at: float | None = None
    expires: float | None = None
    timeout: float | None = None
    unique: UniqueFunction | Unique | None = None
    key: KeyFunction | str | None = None
    cost: Mapping[Any, Any] | None = None
    id: str | None = None
    trace: str | None = None
    tags: tuple[str, ...] = ()
    connection: Any = None


def default_options(task: TaskDefinition) -> CheckedJobOptions:
    """Returns the options that jobs of this task have without `using`."""
    return CheckedJobOptions(
        queue=task.queue, priority=task.priority, expires=task.expires, unique=task.unique, key=task.key
    )


def with_options(options: CheckedJobOptions, changes: Mapping[str, Any]) -> CheckedJobOptions:
    """Returns `options` with `changes` applied. Raises InvalidJob with the field if a value is invalid."""
    refuse_unknown_options(changes, JobOptions.__annotations__, "using")
    checked = {name: _READERS[name](name, value) for name, value in changes.items()}
    if checked.get("at") is not None and checked.get("delay"):
        raise InvalidJob("at: give either at or delay, not both")
    if "at" in checked:
        checked.setdefault("delay", 0.0)
    elif "delay" in checked:
        checked["at"] = None
    changed = msgspec.structs.replace(options, **checked)
    _check(changed)
    if changed.connection is not None and changed.cost is not None:
        raise InvalidJob("cost: cannot be given with connection; the task's own is used then")
    return changed


def _check(options: CheckedJobOptions) -> None:
    sample = NewJob(
        id="sample" if options.id is None else options.id,
        task="sample",
        payload=b"{}",
        priority=options.priority,
        key=options.key if isinstance(options.key, str) else None,
        delay=options.delay,
        at=options.at,
        expires=options.expires,
        timeout=options.timeout,
        unique=options.unique if isinstance(options.unique, Unique) else None,
    )
    if problem := problem_with_group(JobGroup(options.queue, (sample,))):
        raise InvalidJob(problem.removesuffix(f" (job {sample.id!r})"))
    if options.timeout == 0:
        raise InvalidJob("timeout: must be above 0 seconds; leave it out to use the task's own")


def _refuse(field: str, expected: str, value: Any) -> NoReturn:
    raise InvalidJob(f"{field}: must be {expected}, is {value!r}")


def _read_integer(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(field, "a whole number", value)
    return value


def _read_seconds(field: str, value: Any) -> float:
    return parse_seconds(field, value, InvalidJob)


def _read_optional_seconds(field: str, value: Any) -> float | None:
    return None if value is None else _read_seconds(field, value)


def _read_time(field: str, value: Any) -> float:
    return parse_time(field, value, InvalidJob)


def _read_text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        _refuse(field, "a string", value)
    return value


def _read_optional_text(field: str, value: Any) -> str | None:
    return None if value is None else _read_text(field, value)


def _read_unique(field: str, value: Any) -> Unique | None:
    if value is not None and not isinstance(value, Unique):
        _refuse(field, 'a Unique, such as Unique("feed-7", on_conflict="skip")', value)
    return value


def _read_tags(field: str, value: Any) -> tuple[str, ...]:
    # A lone string is a sequence of letters and always a mistake.
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    if not listed or not all(isinstance(tag, str) for tag in value):
        _refuse(field, "a list of strings", value)
    return tuple(value)


def _read_cost(field: str, value: Any) -> Mapping[Any, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        _refuse(field, 'amounts by unit, such as {"tokens": 900}', value)
    return value


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "priority": _read_integer,
    "delay": _read_seconds,
    "at": _read_time,
    "expires": _read_optional_seconds,
    "unique": _read_unique,
    "key": _read_optional_text,
    "cost": _read_cost,
    "timeout": _read_seconds,
    "queue": _read_text,
    "id": _read_text,
    "trace": _read_text,
    "tags": _read_tags,
    "connection": lambda _, value: value,
}
