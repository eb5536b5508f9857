"""Middleware around a handler, in the worker and in its child processes."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware

STAYS_IN_WORKER = "stays_in_worker"
"""An attribute of middleware that runs in the worker also when the handler runs in a child."""

Run = Callable[[], Awaitable[Any]]


def divided(middleware: Sequence[Middleware]) -> tuple[Sequence[Middleware], Sequence[Middleware]]:
    """What stays in the worker, and what goes where the handler runs: a handler may read context variables
    that it sets."""
    staying = tuple(one for one in middleware if hasattr(one, STAYS_IN_WORKER))
    return staying, tuple(one for one in middleware if one not in staying)


def surrounded(middleware: Sequence[Middleware], context: Context, run: Run) -> Run:
    """The first is the outermost."""
    for around in reversed(middleware):
        run = functools.partial(around, context, run)
    return run
