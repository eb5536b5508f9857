"""Calling plain functions from a running loop as if there were none.

Sync handlers run in threads in a real worker. In a test they run on the test's own thread: no time
passes for them, a debugger stops in them, and they see the test's database connection, which many
frameworks bind to the thread. Frameworks refuse blocking calls where a loop runs, so it is hidden.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def no_running_loop() -> Iterator[None]:
    """On this thread, until the block ends."""
    loop = asyncio._get_running_loop()  # noqa: SLF001 - the documented pair for whoever runs loops
    task = None if loop is None else asyncio.current_task(loop)
    if loop is None:
        yield
        return
    if task is not None:
        _leave_task(loop, task)
    asyncio._set_running_loop(None)  # noqa: SLF001 - see above
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)  # noqa: SLF001 - see above
        if task is not None:
            _enter_task(loop, task)


def call_apart(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """As a thread would: without a loop, and in a copy of the context."""
    with no_running_loop():
        return contextvars.copy_context().run(function, *args, **kwargs)


def run_apart(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own, whether or not one runs already."""
    with no_running_loop():
        return asyncio.run(main)
