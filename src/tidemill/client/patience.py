"""A limit for calls that nearly always end long before it.

`asyncio.timeout` sets a timer and takes it back for every call, which costs as much as a third of all
else an enqueue does in this process. Here one timer stands for seconds, and looks who is under way.
"""

from __future__ import annotations

import asyncio
from types import TracebackType


class Patience:
    """Ends what runs inside it by TimeoutError, as `asyncio.timeout_at` does: `with patience.until(time)`.
    For one call at a time, of any task of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._until = 0.0
        self._cancelling = 0
        self._is_over = False

    def until(self, time: float) -> Patience:
        self._until = time
        if self._timer is None:
            self._timer = self._loop.call_at(time, self._look)
        elif time < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(time, self._look)
        return self

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        assert task is not None  # noqa: S101 - whoever awaits is a task
        self._cancelling, self._is_over = task.cancelling(), False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        # Somebody else may have cancelled the task as well: that is more than a timeout.
        if (
            self._is_over
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from error

    def _look(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._look)
        else:
            self._is_over = True
            self._task.cancel()
