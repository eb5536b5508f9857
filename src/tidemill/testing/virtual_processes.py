"""Processes that can die or freeze at any await, inside one virtual-time event loop.

Everything a process starts (tasks, timers, callbacks) inherits its context, and the loop
asks each handle which process it belongs to before running it. So killing one needs no
cooperation: its handles are dropped, no `finally` runs, nothing is cancelled, as with
SIGKILL. Pausing keeps the handles back and runs them late, as with SIGSTOP.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

_CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("virtual process", default=None)


class Process:
    """Made by `VirtualLoop.spawn`."""

    def __init__(self, name: str, resume_later: Callable[[float, Callable[[], None]], object]) -> None:
        self.name = name
        self.alive = True
        self.steps = 0
        self._resume_later = resume_later
        self._pauses = 0
        self._held: deque[asyncio.Handle] = deque()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.remains: list[asyncio.Task[Any]] = []
        self._at_step: dict[int, Callable[[], None]] = {}
        self._at_death: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        state = "dead" if not self.alive else "paused" if self._pauses else "running"
        return f"<Process {self.name} {state}>"

    @property
    def paused(self) -> bool:
        return self._pauses > 0

    def kill(self) -> None:
        """Nothing of the process runs from the next await on."""
        if not self.alive:
            return
        self.alive = False
        self._held.clear()
        self._at_step.clear()
        # Kept until the loop closes: a coroutine that is collected runs its finally blocks.
        self.remains.extend(self._tasks)
        for notice in self._at_death:
            notice()

    def pause(self, seconds: float) -> None:
        """Nothing of the process runs for that long; what came due meanwhile runs then, in order."""
        if self.alive:
            self._pauses += 1
            self._resume_later(seconds, self._resume)

    def at_step(self, step: int, action: Callable[[], None]) -> None:
        """Call `action` when `steps` reaches that number: between any two awaits, timed or not."""
        self._at_step[step] = action

    def at_death(self, notice: Callable[[], None]) -> None:
        """Call `notice` when the process is killed: what its parent or its children see of it."""
        self._at_death.append(notice)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def hold(self, handle: asyncio.Handle) -> None:
        self._held.append(handle)

    def take_held(self) -> deque[asyncio.Handle]:
        held, self._held = self._held, deque()
        return held

    def count_step(self) -> None:
        self.steps += 1
        if self._at_step and (action := self._at_step.pop(self.steps, None)):
            action()

    def bury(self) -> None:
        """Close what a killed process left behind, once nobody is watching."""
        bury(self.remains)
        self.remains.clear()

    def _resume(self) -> None:
        self._pauses -= 1


def current_process() -> Process | None:
    """The process the running code belongs to; None outside of all of them."""
    return _CURRENT.get()


def owner_of(context: contextvars.Context | None) -> Process | None:
    return _CURRENT.get() if context is None else context.get(_CURRENT)


def context_of(process: Process | None) -> contextvars.Context:
    """A context for code that runs in that process, whoever starts it."""
    context = contextvars.copy_context()
    context.run(_CURRENT.set, process)
    return context


async def die() -> None:
    """Kill the process this is awaited in. Does not return."""
    process = _CURRENT.get()
    if process is None:
        raise RuntimeError("die() was awaited outside of every virtual process")
    process.kill()
    await asyncio.get_running_loop().create_future()


def bury(tasks: list[asyncio.Task[Any]]) -> None:
    """Close tasks that will never run again, without the noise of tasks that were forgotten."""
    for task in tasks:
        if not task.done():
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - the only switch
            _close(task)


def _close(task: asyncio.Task[Any]) -> None:
    """From the inside out: a coroutine whose `finally` awaits survives being closed from outside,
    is dropped by its caller, and complains when it is collected."""
    outermost: Any = task.get_coro()
    # Every await in a finally block survives one try; so many are a loop, not a block.
    for _ in range(1000):
        if outermost.cr_frame is None:
            return
        with contextlib.suppress(BaseException):  # the last words of the dead
            _innermost(outermost).close()


def _innermost(coroutine: Any) -> Any:
    awaited = coroutine.cr_await
    while getattr(awaited, "cr_frame", None) is not None:
        coroutine, awaited = awaited, awaited.cr_await
    return coroutine
