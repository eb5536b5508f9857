"""The options of one job: what `using` takes, checked where they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

import msgspec

from tidemill.core.job import DEFAULT_PRIORITY, Group, NewJob, problem_with
from tidemill.core.names import refuse_unknown
from tidemill.core.uniqueness import Unique
from tidemill.errors import InvalidJob
from tidemill.tasks.definition import TaskDefinition
from tidemill.times import read_seconds, read_time

if TYPE_CHECKING:
    from tidemill.tasks.pools import Cost

KeyFunction = Callable[..., str]
UniqueFunction = Callable[..., Unique]


class JobOptions(TypedDict, total=False):
    """Durations are seconds or timedeltas, `at` is a Unix time or an aware datetime. `cost` takes the place
    of the task's own, None means that one. `connection` is one of the caller's own to the store's database:
    the job commits or vanishes with the transaction that is open on it."""

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


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Checked options. `key` and `unique` may still wait for the arguments to be computed from."""

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


def options_of(task: TaskDefinition) -> Options:
    """What a job of this task gets when nothing else is said."""
    return Options(
        queue=task.queue, priority=task.priority, expires=task.expires, unique=task.unique, key=task.key
    )


def with_options(options: Options, changes: Mapping[str, Any]) -> Options:
    """Options with some of them replaced; refuses, naming the field, what no store would take."""
    refuse_unknown(changes, JobOptions.__annotations__, "using")
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


def _check(options: Options) -> None:
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
    if problem := problem_with(Group(options.queue, (sample,))):
        raise InvalidJob(problem.removesuffix(f" (job {sample.id!r})"))
    if options.timeout == 0:
        raise InvalidJob("timeout: must be above 0 seconds; leave it out to use the task's own")


def _refuse(field: str, wanted: str, value: Any) -> NoReturn:
    raise InvalidJob(f"{field}: must be {wanted}, is {value!r}")


def _whole(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(field, "a whole number", value)
    return value


def _seconds(field: str, value: Any) -> float:
    return read_seconds(field, value, InvalidJob)


def _optional_seconds(field: str, value: Any) -> float | None:
    return None if value is None else _seconds(field, value)


def _time(field: str, value: Any) -> float:
    return read_time(field, value, InvalidJob)


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        _refuse(field, "a string", value)
    return value


def _optional_text(field: str, value: Any) -> str | None:
    return None if value is None else _text(field, value)


def _unique(field: str, value: Any) -> Unique | None:
    if value is not None and not isinstance(value, Unique):
        _refuse(field, 'a Unique, such as Unique("feed-7", on_conflict="skip")', value)
    return value


def _tags(field: str, value: Any) -> tuple[str, ...]:
    # A lone string is a sequence of letters, and never what was meant.
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    if not listed or not all(isinstance(tag, str) for tag in value):
        _refuse(field, "a list of strings", value)
    return tuple(value)


def _cost(field: str, value: Any) -> Mapping[Any, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        _refuse(field, 'amounts by unit, such as {"tokens": 900}', value)
    return value


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "priority": _whole,
    "delay": _seconds,
    "at": _time,
    "expires": _optional_seconds,
    "unique": _unique,
    "key": _optional_text,
    "cost": _cost,
    "timeout": _seconds,
    "queue": _text,
    "id": _text,
    "trace": _text,
    "tags": _tags,
    "connection": lambda _, value: value,
}
