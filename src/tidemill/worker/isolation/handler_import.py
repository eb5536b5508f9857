"""Finds the import path of a handler or application, and imports it in another process."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import Any, Protocol, cast

from tidemill.contract.store import Store
from tidemill.tasks.batches import make_batch_definition
from tidemill.tasks.definition import Middleware, TaskDefinition, make_task_definition
from tidemill.worker.isolation.bootstrap import problem_with_main
from tidemill.worker.isolation.messages import HandlerPath

CANNOT_ISOLATE = "cannot isolate"


class CannotIsolate(Exception):
    """Raised if no child process can run the handler, for example because the handler cannot be imported
    there."""


class ChildApplication(Protocol):
    """The part of an application that a child process uses: tasks, store, middleware and lifespan."""

    @property
    def tasks(self) -> Mapping[str, TaskDefinition]: ...
    @property
    def store(self) -> Store: ...
    @property
    def middlewares(self) -> Sequence[Middleware]: ...

    @property
    def shares_store(self) -> bool:
        """True if other processes can reach the store. False if the jobs are in the memory of one process."""
        ...

    def opened(self, *, lifespan: bool = True) -> AbstractAsyncContextManager[Any]:
        """Returns a context manager that opens the store and the lifespan, and yields the lifespan's value.
        `lifespan=False` opens only the store."""
        ...


def find_application_path(application: ChildApplication, application_spec: str | None) -> str | None:
    """Returns `module:variable`, from which another process can import the application. Returns None if the
    application is not a variable of a module.

    `application_spec`: the import path from the command line. It is tried first."""
    if (
        application_spec is not None
        and ":" in application_spec
        and _is_application_at(application, application_spec)
    ):
        return application_spec
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
    name, variable = min(found, key=lambda entry: (entry[0] == "__main__", entry[0] not in handlers))
    return f"{name}:{variable}"


def _is_application_at(application: object, path: str) -> bool:
    module, _, variable = path.partition(":")
    try:
        return functools.reduce(getattr, variable.split("."), cast("Any", sys.modules[module])) is application
    except (AttributeError, KeyError):
        return False


def import_application(path: str) -> ChildApplication:
    module, _, variable = path.partition(":")
    try:
        return cast(
            "ChildApplication", functools.reduce(getattr, variable.split("."), _import_module(module))
        )
    except AttributeError:
        raise CannotIsolate(f"there is no {variable} in {module}") from None


def find_handler_path(definition: TaskDefinition) -> HandlerPath:
    """Returns the import path of the handler. Raises `CannotIsolate` if another process could not import
    it."""
    handler = definition.handler
    path = HandlerPath(
        getattr(handler, "__module__", "") or "",
        getattr(handler, "__qualname__", "") or "",
        definition.batch is not None,
    )
    if "<" in path.qualname or not path.module:
        raise CannotIsolate(f"{path.qualname or handler!r} is not defined at the top of a module")
    found = _resolve_qualname(sys.modules.get(path.module), path)
    of_a_task = _get_definition(found)
    if (found if of_a_task is None else of_a_task.handler) is not handler:
        raise CannotIsolate(f"{path.module}.{path.qualname} is not the handler of task {definition.name!r}")
    if path.module == "__main__" and (problem := problem_with_main()):
        raise CannotIsolate(problem)
    return path


def import_task(path: HandlerPath | None) -> TaskDefinition:
    """Imports the handler at `path` and returns its task definition. A function without a task decorator gets
    default options.

    Raises `CannotIsolate` if `path` is None or the import fails."""
    if path is None:
        raise CannotIsolate("the application has no such task in another process")
    found = _resolve_qualname(_import_module(path.module), path)
    return _get_definition(found) or (
        make_batch_definition(found, max_items=1) if path.batch else make_task_definition(found)
    )


def _import_module(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise CannotIsolate(f"importing {module} raised {type(error).__name__}: {error}") from error


def _resolve_qualname(found: Any, path: HandlerPath) -> Any:
    for name in path.qualname.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise CannotIsolate(f"there is no {path.qualname} in {path.module}")
    return found


def _get_definition(found: Any) -> TaskDefinition | None:
    definition = getattr(found, "definition", None)
    return definition if isinstance(definition, TaskDefinition) else None
