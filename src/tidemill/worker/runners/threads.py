"""Sync handlers in threads.

A pool of our own, because `run_in_executor` costs 18 µs a call and its threads hold up the
exit of the process. A thread cannot be killed: when its attempt times out, `over` stays false
until the handler really ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any


class Call:
    """One handler in a thread. `when_over` is called on the loop if the caller stopped waiting."""

    __slots__ = ("args", "context", "error", "function", "future", "kwargs", "over", "result", "when_over")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        future: asyncio.Future[Any],
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.context = contextvars.copy_context()
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None
        self.over = False
        self.when_over: Callable[[], None] | None = None

    def run(self) -> None:
        try:
            self.result = self.context.run(self.function, *self.args, **self.kwargs)
        # A future refuses the first; the others would end the loop, and no signal reaches a thread.
        except (StopIteration, KeyboardInterrupt, GeneratorExit) as error:
            self.error = RuntimeError(f"the handler raised {type(error).__name__}: {error}")
        except BaseException as error:  # noqa: BLE001 - carried to the loop, whatever it is
            self.error = error


class Threads:
    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._ended: deque[Call] = deque()
        self._places = asyncio.Semaphore(limit)
        self._signalled = False
        self._started = 0
        self._taken = 0

    async def free(self) -> None:
        """Wait until a thread is free, which a stuck one is not. `start` must follow at once."""
        await self._places.acquire()

    def leave(self) -> None:
        """What `free` waited for is not needed: no `start` follows."""
        self._places.release()

    def start(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        call = Call(function, args, kwargs, self._loop.create_future())
        if self._taken == self._started:
            self._start_thread()
        self._taken += 1
        self._calls.put(call)
        return call

    def close(self) -> None:
        for _ in range(self._started):
            self._calls.put(None)

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._serve, name=f"tidemill-{self._started + 1}", daemon=True).start()
        except RuntimeError:  # the machine has none left: this attempt fails, its place is free again
            self._places.release()
            raise
        self._started += 1

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            self._ended.append(call)
            # Waking the loop is a system call: one is enough for all that ended meanwhile.
            if not self._signalled:
                self._signalled = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop is closed: the worker is gone, so is the attempt
                    return

    def _collect(self) -> None:
        self._signalled = False  # before looking: what ends from here on signals again
        while self._ended:
            call = self._ended.popleft()
            self._taken -= 1
            self._places.release()
            call.over = True
            if call.when_over is not None:
                call.when_over()
            elif call.future.cancelled():
                pass
            elif call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.result)
