"""The catalogue is complete, uniform, and what docs/reference/events.md says."""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from tests.docs.pages import page, rows, section
from tidemill.telemetry import (
    events,
    flow_events,
    job_events,
    pool_events,
    schedule_events,
    worker_events,
)
from tidemill.telemetry.base import RANKS
from tidemill.telemetry.events import CATALOGUE, AttemptEvent, Event, JobEvent, PoolEvent, WorkerEvent

PAGE = page("reference/events.md")
KINDS: tuple[type[Event], ...] = (Event, JobEvent, AttemptEvent, WorkerEvent, PoolEvent)


def _names(fields: str) -> tuple[str, ...]:
    return tuple(name.strip(" `") for name in fields.split(",") if name.strip())


def _row(kind: type[Event]) -> list[str]:
    base: Any = kind.__mro__[1]
    own = [f"`{field}`" for field in kind.__struct_fields__ if field not in base.__struct_fields__]
    when = kind.__doc__ or ""
    return [f"`{kind.__name__}`", f"`{base.__name__}`", kind.level, kind.sentence, ", ".join(own), when]


@pytest.mark.parametrize(
    ("title", "module"),
    [
        ("Jobs", job_events),
        ("Flows", flow_events),
        ("Pools", pool_events),
        ("Schedules", schedule_events),
        ("Workers and the store", worker_events),
    ],
)
def test_the_page_is_the_catalogue(title: str, module: Any) -> None:
    """Both ways: an event that is missing on either side, or a word that differs, fails."""
    documented = rows(section(PAGE, title))
    assert documented == [_row(kind) for kind in CATALOGUE if kind.__module__ == module.__name__]


def test_the_kinds_of_the_page_are_the_bases() -> None:
    documented = {name.strip("`"): _names(fields) for name, fields in rows(section(PAGE, "Kinds"))}
    assert documented == {kind.__name__: kind.__struct_fields__ for kind in KINDS}


def test_every_event_there_is_is_in_the_catalogue() -> None:
    defined = {
        value
        for module in (flow_events, job_events, pool_events, schedule_events, worker_events)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Event) and value not in KINDS
    }
    assert set(CATALOGUE) == defined
    assert len(CATALOGUE) == len(defined)
    assert set(events.__all__) == {kind.__name__ for kind in CATALOGUE + KINDS} | {"CATALOGUE"}


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_event_has_a_level_a_sentence_and_one_line_on_when(kind: type[Event]) -> None:
    assert kind.level in RANKS
    assert kind.sentence
    assert kind.__doc__
    assert "\n" not in kind.__doc__
    assert kind.__doc__.endswith(".")


def test_a_field_means_the_same_everywhere() -> None:
    """One word, one type; it may be missing from some."""
    types: dict[str, set[Any]] = {}
    for kind in CATALOGUE:
        hints = get_type_hints(kind)
        for field in kind.__struct_fields__:
            given = [one for one in get_args(hints[field]) if one is not NoneType]
            optional = NoneType in get_args(hints[field])
            types.setdefault(field, set()).add(given[0] if optional else hints[field])
    assert {field: kinds for field, kinds in types.items() if len(kinds) > 1} == {}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            events.JobFailed(
                job="a",
                task="songs:describe",
                queue="songs",
                trace="a",
                attempt=1,
                worker="w",
                seconds=0.5,
                reason="failed",
                error="ValueError",
                message="boom",
            ),
            "job failed: songs:describe, job a, ValueError: boom",
        ),
        (
            events.StoreLost(worker="w", error="StoreFull", message="no space", outcomes=2),
            "store unavailable: worker w, StoreFull: no space",
        ),
        (events.StoreBack(worker="w", seconds=2.0), "store available again: worker w"),
        (
            events.QueuesUnknown(unknown=("a",), known=()),
            "queues that the application neither declares nor has a task on",
        ),
    ],
)
def test_as_text_an_event_says_what_happened_to_whom_and_why(event: Event, text: str) -> None:
    assert str(event) == text
