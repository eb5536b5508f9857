"""The reference matches the code: nothing is undocumented, nothing is invented."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, get_args

import msgspec
import pytest

from tests.docs.pages import DOCS, ROOT, every_page, first_column, page, rows, section
from tidemill import errors
from tidemill.client.job_options import JobOptions
from tidemill.client.task_options import BatchTaskOptions, TaskOptions
from tidemill.core.limits import Charge, Limit, Shape
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueOptions, QueueSettings
from tidemill.core.retry import Retry
from tidemill.core.states import TRANSITIONS, State
from tidemill.core.unique_keys import Unique
from tidemill.core.windows import Guards
from tidemill.tasks.pools import PoolOptions
from tidemill.worker.options import WorkerOptions


def test_every_error_is_documented() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    documented = {name.partition("(")[0] for name in first_column(page("reference/errors.md"))}
    assert documented == raised


def test_the_error_tree_in_the_module_is_complete() -> None:
    tree = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert re.search(rf"\b{name}\b", tree), f"{name} is missing in the tree of errors.py"


def test_every_state_is_documented() -> None:
    states = page("reference/states.md").split("## Moves")[0]
    assert first_column(states) == [state.value for state in State]


def test_the_moves_are_the_transition_table() -> None:
    """I4: the page equals the transition table."""
    documented = {
        (verb, before): set(after.split(", "))
        for verb, before, after in rows(section(page("reference/states.md"), "Moves"))
    }
    table = {
        (verb.value, before.value): {state.value for state in after}
        for verb, moves in TRANSITIONS.items()
        for before, after in moves.items()
    }
    assert documented == table


def test_every_obligation_is_documented() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src/tidemill/contract").glob("*.py"))
    written = re.findall(r'^ *(?:""")?([A-Z]\d+) +[A-Z`]', source, re.MULTILINE)
    documented = [
        name for name in first_column(page("reference/contracts.md")) if re.fullmatch(r"[A-Z]\d+", name)
    ]
    assert len(set(written)) == len(written), "an obligation's number is used twice"
    assert sorted(documented) == sorted(written)


@pytest.mark.parametrize(
    ("title", "known"),
    [("Task", TaskOptions), ("Job", JobOptions), ("Queue", QueueOptions), ("Pool", PoolOptions)],
)
def test_every_option_is_documented(title: str, known: type) -> None:
    assert first_column(section(page("reference/settings.md"), title)) == list(known.__annotations__)


def test_every_option_of_a_batch_task_is_documented() -> None:
    own = [name for name in BatchTaskOptions.__annotations__ if name not in TaskOptions.__annotations__]
    documented = first_column(section(page("reference/settings.md"), "Batch task"))
    assert documented == ["max_items", "cost", *own]


def _struct_defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(kind)}


def _dataclass_defaults(kind: Any) -> dict[str, Any]:
    return {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for field in dataclasses.fields(kind)
    }


def _worker_defaults() -> dict[str, Any]:
    """Returns the defaults of a worker. The application sets the queues (tests/client/test_app.py), and the
    supervisor the processes."""
    return _dataclass_defaults(WorkerOptions) | {"queues": _EVERY_QUEUE, "processes": None}


def _pool_defaults() -> dict[str, Any]:
    """Returns the defaults as a program writes them: the guards are separate options, and a classifier is
    not stored."""
    stored = _struct_defaults(PoolSettings) | _struct_defaults(Guards) | {"classify": None}
    return {name: stored[name] for name in PoolOptions.__annotations__}


def _limit_defaults() -> dict[str, Any]:
    given = inspect.signature(Limit.of).parameters.values()
    return {one.name: msgspec.NODEFAULT if one.default is one.empty else one.default for one in given}


_EVERY_QUEUE = "every queue that was declared or that a task is on"


@pytest.mark.parametrize(
    ("title", "defaults"),
    [
        ("Retry", _struct_defaults(Retry)),
        ("Unique", _struct_defaults(Unique)),
        ("Queue", _struct_defaults(QueueSettings)),
        ("Pool", _pool_defaults()),
        ("Limit", _limit_defaults()),
        ("Worker", _worker_defaults()),
    ],
)
def test_every_default_is_documented(title: str, defaults: dict[str, Any]) -> None:
    documented = {row[0].strip("`"): row[1] for row in rows(section(page("reference/settings.md"), title))}
    expected = {
        name: "" if value is msgspec.NODEFAULT else value if value is _EVERY_QUEUE else f"`{value!r}`"
        for name, value in defaults.items()
    }
    assert documented == expected


@pytest.mark.parametrize(
    ("title", "known"), [("Limit: shape", tuple(Shape)), ("Limit: charge", get_args(Charge))]
)
def test_every_choice_of_a_limit_is_documented(title: str, known: tuple[str, ...]) -> None:
    assert first_column(section(page("reference/settings.md"), title)) == list(known)


def test_every_decision_is_listed() -> None:
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", page("adr/README.md"))
    assert listed == sorted(path.name for path in (DOCS / "adr").glob("0*.md"))


@pytest.mark.parametrize("path", every_page(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Any) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}, which is not there"
