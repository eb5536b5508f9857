"""Writes docs/reference/api.md from the public names, their signatures and their docstrings.

Run it after changing any of them; tests/client/test_api_page.py fails until then."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_overloads

import msgspec

import tidemill
from tidemill.client.job_options import JobOptions
from tidemill.client.task_options import BatchTaskOptions, TaskOptions
from tidemill.core.queues import QueueOptions
from tidemill.schedules.settings import ScheduleOptions
from tidemill.settings.worker_options import WorkerArguments
from tidemill.tasks.pools import PoolOptions

PAGE = Path(__file__).parents[1] / "docs/reference/api.md"

SECTIONS = {
    "The application": ["Tidemill"],
    "Tasks and jobs": [
        "Task",
        "JobHandle",
        "JobRequest",
        "Context",
        "CurrentAttempt",
        "Retry",
        "Unique",
        "Secret",
        "current_attempt",
    ],
    "Pools": ["Pool", "Limit", "Day", "Week", "Month", "TimeOfDay", "Refusal", "Reason"],
    "Batches": ["FailedItem", "ItemChunk", "split_into_chunks"],
    "Flows": [
        "Flow",
        "FlowStep",
        "unmapped",
        "FlowHandle",
        "StepFailure",
        "FlowPosition",
        "FlowView",
        "StepView",
        "FlowState",
        "StepState",
        "FlowPage",
    ],
    "Periodic functions": ["PeriodicFunction"],
    "Schedules": ["Schedules", "ScheduleView", "SchedulePage", "ScheduleState"],
    "Queues": ["QueueSettings", "Retention", "QueueChanges", "Override"],
    "Inspection": [
        "Inspector",
        "Filter",
        "JobPage",
        "QueueView",
        "QueueTotal",
        "JobView",
        "Overview",
        "PoolStatus",
        "Explanation",
        "DependencyStatus",
        "Plan",
    ],
    "Changes": [
        "OperatorChange",
        "BulkResult",
        "RetryJobs",
        "RunJobsNow",
        "CancelJobs",
        "ArchiveJobs",
        "DeleteJobs",
        "ReprioritiseJobs",
    ],
    "Notifications": [
        "Webhooks",
        "NewWebhook",
        "WebhookView",
        "FinishedJob",
        "AllowedAddresses",
        "Alerts",
        "AlertRule",
        "AlertView",
    ],
    "Records": ["Job", "Error", "State"],
}

INTRODUCTION = """# Python

Everything that `from tidemill import …` has. `tidemill.testing`, `tidemill.frameworks`,
`tidemill.notifications.verify` and `tidemill.telemetry.events` are public too and have pages of their own;
everything else inside the package may change without notice. Programs without an event loop run what is
`async` by `app.run_sync(…)`.

This page is written by `scripts/api_page.py` from the code.
"""

OPTIONS = {
    TaskOptions: "task",
    BatchTaskOptions: "batch-task",
    JobOptions: "job",
    QueueOptions: "queue",
    PoolOptions: "",
    ScheduleOptions: "",
    WorkerArguments: "worker",
}
"""Each options type, with the section of settings.md that explains it. Pools and schedules are set in code.
"""

OPTIONS_INTRODUCTION = """The names that stand behind `**options` above. They are types for editors: pass
what they list as keyword arguments.
"""

MATCHER = "type[BaseException] | Callable[[BaseException], bool]"
"""The expansion of the alias Matcher. Signatures show the expansion, and this one would appear six times."""

WIDEST = 100


def page() -> str:
    parts = [INTRODUCTION]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [part for name in names for part in _entry(name)]
    parts += ["## Options\n", OPTIONS_INTRODUCTION, *(part for one in OPTIONS for part in _options(one))]
    parts += ["## Errors\n", "[What to do about each](errors.md).\n", _errors()]
    return "\n".join(parts)


def _entry(name: str) -> Iterator[str]:
    value = getattr(tidemill, name)
    yield f"### {name}\n"
    if inspect.isfunction(value):
        yield _code(name, _parameters(value), inspect.signature(value).return_annotation)
        yield f"{_prose(value)}\n"
        return
    if not isinstance(value, type):
        yield f"One of {', '.join(f'`{one.__name__}`' for one in value.__args__)}.\n"
        return
    if isinstance(value, type) and issubclass(value, Enum):
        yield f"{_prose(value)}\n\nOne of {', '.join(f'`{one.value}`' for one in value)}.\n"
        return
    if issubclass(value, msgspec.Struct):
        yield _code(name, _parameters(value))
    elif value is tidemill.Tidemill:
        yield _code(name, _parameters(value.__init__))
    yield f"{_prose(value)}\n"
    if issubclass(value, msgspec.Struct):
        yield from _members(value, silent=False)
        return
    if attributes := [f"`{slot}`" for slot in getattr(value, "__slots__", ()) if not slot.startswith("_")]:
        yield f"Attributes: {', '.join(sorted(attributes))}.\n"
    yield from _members(value)


def _options(kind: type) -> Iterator[str]:
    yield f"### {kind.__name__}\n"
    lines = [f"{name}: {_type(_bare(annotation))}" for name, annotation in kind.__annotations__.items()]
    yield "\n".join(["```python", *lines, "```", ""])
    if OPTIONS[kind]:
        yield f"[What each means, and its default](settings.md#{OPTIONS[kind]}).\n"


def _bare(annotation: Any) -> Any:
    """Returns the annotation as written; TypedDicts wrap it in a ForwardRef."""
    return getattr(annotation, "__forward_arg__", annotation)


def _members(owner: type, *, silent: bool = True) -> Iterator[str]:
    """Yields the documented members of a class. Members without a docstring are included if `silent`.

    Class methods are included unless `silent`: users create values with them."""
    for name, found in _own(owner):
        made = isinstance(found, classmethod)
        member = found.__func__ if made else found
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        if not (member.__doc__ or silent) or (made and silent):
            continue
        if isinstance(member, property):
            head = f"{name}: {inspect.signature(member.fget).return_annotation}"  # type: ignore[arg-type]
            yield f"```python\n{head}\n```\n"
        else:
            function = (get_overloads(member) or [member])[-1]
            kind = "async " if inspect.iscoroutinefunction(member) else ""
            whole = f"{owner.__name__}.{name}" if made else name
            yield _code(kind + whole, _parameters(function), inspect.signature(function).return_annotation)
        yield f"{_prose(member)}\n"


def _own(owner: type) -> Iterator[tuple[str, Any]]:
    """Yields the members of the class and of its bases in tidemill."""
    for part in owner.__mro__:
        if part.__module__.startswith("tidemill"):
            yield from vars(part).items()


def _parameters(function: Any) -> list[str]:
    """Returns the parameters as written, without `self` and `cls`."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
    written: list[str] = []
    for before, parameter in zip([None, *parameters], parameters, strict=False):
        kind, last = parameter.kind, before and before.kind
        if last is parameter.POSITIONAL_ONLY and kind is not last:
            written.append("/")
        if kind is parameter.KEYWORD_ONLY and last not in (kind, parameter.VAR_POSITIONAL):
            written.append("*")
        written.append(_parameter(parameter))
    return written


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}: {_type(parameter.annotation)}{default}"


def _type(annotation: Any) -> str:
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    short = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", shown).replace(" | UnsetType", "")
    short = re.sub(r"^Optional\[(.+)\]$", r"\1 | None", short)  # how Python prints a generic type or None
    short = re.sub(r"^\+(\w+)_co$", r"\1", short)
    return short.replace(MATCHER, "Matcher")


def _code(name: str, parameters: list[str], answer: Any = inspect.Signature.empty) -> str:
    returns = "" if answer is inspect.Signature.empty else f" -> {_type(answer)}"
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) > WIDEST:
        line = f"{name}(\n" + "".join(f"    {one},\n" for one in parameters) + f"){returns}"
    return f"```python\n{line}\n```\n"


def _prose(value: Any) -> str:
    """Returns the docstring; a paragraph of lines of the form `name, name: meaning` becomes a list."""
    return "\n\n".join(map(_paragraph, inspect.cleandoc(value.__doc__ or "").split("\n\n")))


def _paragraph(text: str) -> str:
    if not re.match(r"\w+(?:, \w+)*: ", text):
        return text
    return re.sub(r"^(\w+(?:, \w+)*): ", lambda found: f"- {_quoted(found[1])}: ", text, flags=re.MULTILINE)


def _quoted(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def _errors() -> str:
    named = {name for names in SECTIONS.values() for name in names}
    rest = [name for name in tidemill.__all__ if name not in named]
    if lost := [name for name in rest if not _is_error(name)]:
        raise SystemExit(f"put into one of the SECTIONS: {', '.join(lost)}")
    lines = [f"| `{name}` | {_first_line(getattr(tidemill, name))} |" for name in rest]
    return "\n".join(["| error | what it says |", "|---|---|", *lines, ""])


def _is_error(name: str) -> bool:
    value = getattr(tidemill, name)
    return isinstance(value, type) and issubclass(value, Exception)


def _first_line(value: Any) -> str:
    return " ".join((value.__doc__ or "").split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
