"""Virtual processes inside one virtual event loop. A test can kill or pause a process at any await.

Tasks, timers and callbacks belong to the process that starts them. The loop drops the callbacks of a killed
process, as with SIGKILL: no `finally` block runs. It delays the callbacks of a paused process, as with
SIGSTOP.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

_CURRENT_PROCESS: contextvars.ContextVar[VirtualProcess | None] = contextvars.ContextVar(
    "virtual process", default=None
)


class VirtualProcess:
    """A virtual process, created by `VirtualLoop.spawn`. `steps` counts the callbacks that it has run."""

    def __init__(self, name: str, resume_later: Callable[[float, Callable[[], None]], object]) -> None:
        self.name = name
        self.alive = True
        self.steps = 0
        self._resume_later = resume_later
        self._pauses = 0
        self._held: deque[asyncio.Handle] = deque()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.dead_tasks: list[asyncio.Task[Any]] = []
        self._at_step: dict[int, Callable[[], None]] = {}
        self._at_death: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        state = "dead" if not self.alive else "paused" if self._pauses else "running"
        return f"<Process {self.name} {state}>"

    @property
    def paused(self) -> bool:
        return self._pauses > 0

    def kill(self) -> None:
        """Kills the process. Code that waits never continues; running code stops at its next await."""
        if not self.alive:
            return
        self.alive = False
        self._held.clear()
        self._at_step.clear()
        # Kept until the loop closes: garbage collection of a coroutine would run its finally blocks.
        self.dead_tasks.extend(self._tasks)
        for notice in self._at_death:
            notice()

    def pause(self, seconds: float) -> None:
        """Pauses the process for `seconds`. Callbacks that come due meanwhile run afterwards, in order."""
        if self.alive:
            self._pauses += 1
            self._resume_later(seconds, self._resume)

    def at_step(self, step: int, action: Callable[[], None]) -> None:
        """Calls `action` when the process has run `step` callbacks of the event loop. With this, a test can
        act between any two awaits of the process."""
        self._at_step[step] = action

    def on_kill(self, notice: Callable[[], None]) -> None:
        """Registers `notice`, a function that is called when the process is killed. A test uses it to
        simulate a parent or child process that reacts to the death."""
        self._at_death.append(notice)

    def add_task(self, task: asyncio.Task[Any]) -> None:
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

    def close_dead_tasks(self) -> None:
        """Closes the remaining tasks of a killed process, after the test has ended."""
        close_dead_tasks(self.dead_tasks)
        self.dead_tasks.clear()

    def _resume(self) -> None:
        self._pauses -= 1


def current_process() -> VirtualProcess | None:
    """Returns the process of the running code, or None outside of all processes."""
    return _CURRENT_PROCESS.get()


def process_of_context(context: contextvars.Context | None) -> VirtualProcess | None:
    return _CURRENT_PROCESS.get() if context is None else context.get(_CURRENT_PROCESS)


def context_for_process(process: VirtualProcess | None) -> contextvars.Context:
    """Returns a copy of the current context. Code that runs in it belongs to `process`, or to no process if
    None."""
    context = contextvars.copy_context()
    context.run(_CURRENT_PROCESS.set, process)
    return context


async def kill_current_process() -> None:
    """Kills the process of the caller. Does not return."""
    process = _CURRENT_PROCESS.get()
    if process is None:
        raise RuntimeError("kill_current_process was awaited outside of every virtual process")
    process.kill()
    await asyncio.get_running_loop().create_future()


def close_dead_tasks(tasks: list[asyncio.Task[Any]]) -> None:
    """Closes tasks that will never run again, without asyncio's warnings about pending tasks."""
    for task in tasks:
        if not task.done():
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - the only switch
            _close_task(task)


def _close_task(task: asyncio.Task[Any]) -> None:
    """Closes the coroutines of a task, from the innermost to the outermost. If only the outermost were
    closed, Python could print a warning about an inner one."""
    outermost: Any = task.get_coro()
    # Each await in a finally block survives one close. After this number of closes it is a loop.
    for _ in range(1000):
        if outermost.cr_frame is None:
            return
        with contextlib.suppress(BaseException):  # errors from finally blocks of a killed process
            _innermost_coroutine(outermost).close()


def _innermost_coroutine(coroutine: Any) -> Any:
    awaited = coroutine.cr_await
    while getattr(awaited, "cr_frame", None) is not None:
        coroutine, awaited = awaited, awaited.cr_await
    return coroutine
