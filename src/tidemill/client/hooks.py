"""What an application may put around its handlers, checked where it is given."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from tidemill.errors import ConfigurationError
from tidemill.tasks.definition import Middleware

Opens = TypeVar("Opens", bound=Callable[[], AsyncIterator[Any] | AbstractAsyncContextManager[Any]])


def lifespan_of(function: Callable[[], Any]) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """A context manager factory of an async generator function, with or without its decorator."""
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isasyncgenfunction(inspect.unwrap(function)):
        return function  # `@asynccontextmanager` was applied already
    raise ConfigurationError(
        f"lifespan: {function!r} is not an async generator function; write `async def shared(): … yield it …`"
    )


def check_middleware(function: Middleware) -> None:
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)):
        raise ConfigurationError(
            f"middleware: {function!r} is not async; write `async def` and `return await run()`"
        )
