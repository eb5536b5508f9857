"""Finding a handler or an application again by its name, in this process or in another."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import Any, Protocol, cast

from tidemill.contract.store import Store
from tidemill.tasks.batches import define_batch
from tidemill.tasks.definition import Middleware, TaskDefinition, define
from tidemill.worker.runners.main_module import problem_with_main
from tidemill.worker.runners.messages import Place

NOT_APART = "cannot isolate"


class CannotIsolate(Exception):
    """No other process can run the handler: it is not found by import, or needs something of its worker."""


class Application(Protocol):
    """The part of an application that a child process uses."""

    @property
    def tasks(self) -> Mapping[str, TaskDefinition]: ...
    @property
    def store(self) -> Store: ...
    @property
    def middlewares(self) -> Sequence[Middleware]: ...

    @property
    def shares_store(self) -> bool:
        """False when the jobs are in the memory of one process."""
        ...

    def opened(self, *, lifespan: bool = True) -> AbstractAsyncContextManager[Any]:
        """Opens the store and the lifespan; gives what the lifespan yields."""
        ...


def application_place(application: Application, loaded_as: str | None) -> str | None:
    """Returns `module:variable`, by which another process finds the application. None when it is no
    module's variable. `loaded_as` is the place where a command found it. A module of one of its handlers
    comes first: others may only have imported it from there."""
    if loaded_as is not None and ":" in loaded_as and _is_at(application, loaded_as):
        return loaded_as
    modules = [(name, module) for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)]
    found = [
        (name, variable)
        for name, module in modules
        for variable, value in list(vars(module).items())
        if value is application and name != "__mp_main__" and not (name == "__main__" and problem_with_main())
    ]
    if not found:
        return None
    handlers = {task.handler.__module__ for task in application.tasks.values()}
    name, variable = min(found, key=lambda one: (one[0] == "__main__", one[0] not in handlers))
    return f"{name}:{variable}"


def _is_at(application: object, place: str) -> bool:
    module, _, variable = place.partition(":")
    try:
        return functools.reduce(getattr, variable.split("."), cast("Any", sys.modules[module])) is application
    except (AttributeError, KeyError):
        return False


def find_application(place: str) -> Application:
    module, _, variable = place.partition(":")
    try:
        return cast("Application", functools.reduce(getattr, variable.split("."), _imported(module)))
    except AttributeError:
        raise CannotIsolate(f"there is no {variable} in {module}") from None


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
    if place.module == "__main__" and (problem := problem_with_main()):
        raise CannotIsolate(problem)
    return place


def find(place: Place | None) -> TaskDefinition:
    """The definition at that place; a plain function gets one with default options and its own name."""
    if place is None:
        raise CannotIsolate("the application has no such task in another process")
    found = _walk(_imported(place.module), place)
    return _definition(found) or (define_batch(found, max_items=1) if place.batch else define(found))


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise CannotIsolate(f"importing {module} raised {type(error).__name__}: {error}") from error


def _walk(found: Any, place: Place) -> Any:
    for name in place.qualname.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise CannotIsolate(f"there is no {place.qualname} in {place.module}")
    return found


def _definition(found: Any) -> TaskDefinition | None:
    definition = getattr(found, "definition", None)
    return definition if isinstance(definition, TaskDefinition) else None
