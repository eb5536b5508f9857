"""The event catalogue is complete and uniform, and docs/reference/events.md matches it."""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from tests.docs.pages import page, rows, section
from tidemill.telemetry import events, job_events, worker_events
from tidemill.telemetry.event_base import LEVEL_RANKS
from tidemill.telemetry.events import (
    CATALOGUE,
    AttemptEvent,
    Event,
    JobEvent,
    PoolEvent,
    WorkerEvent,
)

PAGE = page("reference/events.md")
KINDS: tuple[type[Event], ...] = (Event, JobEvent, AttemptEvent, WorkerEvent, PoolEvent)


def _names(fields: str) -> tuple[str, ...]:
    return tuple(name.strip(" `") for name in fields.split(",") if name.strip())


def _row(kind: type[Event]) -> list[str]:
    base: Any = kind.__mro__[1]
    own = [f"`{field}`" for field in kind.__struct_fields__ if field not in base.__struct_fields__]
    when = " ".join((kind.__doc__ or "").split())
    return [f"`{kind.__name__}`", f"`{base.__name__}`", kind.level, kind.sentence, ", ".join(own), when]


def _section(kind: type[Event]) -> str:
    """Returns the section of the page that lists an event."""
    if issubclass(kind, PoolEvent) or kind in (worker_events.FeedbackProblem, worker_events.UnreservedCall):
        return "Pools"
    for prefix, title in (("Flow", "Flows"), ("Schedule", "Schedules")):
        if kind.__name__.startswith(prefix):
            return title
    return "Jobs" if kind.__module__ == job_events.__name__ else "Workers and the store"


@pytest.mark.parametrize("title", ["Jobs", "Flows", "Pools", "Schedules", "Workers and the store"])
def test_the_page_is_the_catalogue(title: str) -> None:
    """Fails for an event that the page or the catalogue lacks, and for a row that differs."""
    documented = rows(section(PAGE, title))
    assert documented == [_row(kind) for kind in CATALOGUE if _section(kind) == title]


def test_the_kinds_of_the_page_are_the_bases() -> None:
    documented = {name.strip("`"): _names(fields) for name, fields in rows(section(PAGE, "Kinds"))}
    assert documented == {kind.__name__: kind.__struct_fields__ for kind in KINDS}


def test_every_event_there_is_is_in_the_catalogue() -> None:
    defined = {
        value
        for module in (job_events, worker_events)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Event) and value not in KINDS
    }
    assert set(CATALOGUE) == defined
    assert len(CATALOGUE) == len(defined)
    assert set(events.__all__) == {kind.__name__ for kind in CATALOGUE + KINDS} | {"CATALOGUE"}


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_event_has_a_level_a_sentence_and_one_paragraph_on_when(kind: type[Event]) -> None:
    assert kind.level in LEVEL_RANKS
    assert kind.sentence
    assert kind.__doc__
    assert "\n\n" not in kind.__doc__
    assert kind.__doc__.endswith(".")


def test_a_field_means_the_same_everywhere() -> None:
    """A field name has one type in all events; it may be optional in some."""
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
        (events.StoreRecovered(worker="w", seconds=2.0), "store available again: worker w"),
        (
            events.UnknownQueues(unknown=("a",), known=()),
            "unknown queues",
        ),
    ],
)
def test_the_text_of_an_event(event: Event, text: str) -> None:
    assert str(event) == text
