"""Finding a handler again by its name, in this process or in another."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tidemill.tasks.batches import define_batch
from tidemill.tasks.definition import TaskDefinition, define
from tidemill.worker.runners.messages import Place

NOT_APART = "cannot isolate"


class CannotIsolate(Exception):
    """No other process can run the handler: it is not found by import, or needs something of its worker."""


def place_of(definition: TaskDefinition) -> Place:
    """Where another process will find the handler; refuses what it would not find there."""
    handler = definition.handler
    place = Place(
        getattr(handler, "__module__", "") or "",
        getattr(handler, "__qualname__", "") or "",
        definition.batch is not None,
    )
    if "<" in place.qualname or not place.module:
        raise CannotIsolate(f"{place.qualname or handler!r} is not defined at the top of a module")
    found = _walk(sys.modules.get(place.module), place)
    of_a_task = _definition(found)
    if (found if of_a_task is None else of_a_task.handler) is not handler:
        raise CannotIsolate(f"{place.module}.{place.qualname} is not the handler of task {definition.name!r}")
    if place.module == "__main__" and not _main_can_be_imported():
        raise CannotIsolate("the main module was not started from a file or with -m")
    return place


def find(place: Place) -> TaskDefinition:
    """The definition at that place; a plain function gets one with default options and its own name."""
    try:
        module = importlib.import_module(place.module)
    except Exception as error:
        raise CannotIsolate(f"importing {place.module} raised {type(error).__name__}: {error}") from error
    found = _walk(module, place)
    return _definition(found) or (define_batch(found, max_items=1) if place.batch else define(found))


def _walk(found: Any, place: Place) -> Any:
    for name in place.qualname.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise CannotIsolate(f"there is no {place.qualname} in {place.module}")
    return found


def _definition(found: Any) -> TaskDefinition | None:
    definition = getattr(found, "definition", None)
    return definition if isinstance(definition, TaskDefinition) else None


def _main_can_be_imported() -> bool:
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or hasattr(main, "__file__")
