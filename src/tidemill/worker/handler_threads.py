"""Runs sync handlers in threads. A thread cannot be killed, so a handler may continue after its timeout.

`run_in_executor` is not used: it costs 18 µs per call, and its threads delay the exit of the process."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any


class ThreadCall:
    """One call of a handler in a thread. `future` gets the result; `over` is True when the handler has ended.

    `on_end`: set it to be called on the event loop when the handler has ended."""

    __slots__ = ("args", "context", "error", "function", "future", "kwargs", "on_end", "over", "result")

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
        self.on_end: Callable[[], None] | None = None

    def run(self) -> None:
        try:
            self.result = self.context.run(self.function, *self.args, **self.kwargs)
        # A future refuses StopIteration; the other two would end the loop, and no signal reaches a thread.
        except (StopIteration, KeyboardInterrupt, GeneratorExit) as error:
            self.error = RuntimeError(f"the handler raised {type(error).__name__}: {error}")
        except BaseException as error:  # noqa: BLE001 - carried to the loop, whatever it is
            self.error = error


class HandlerThreads:
    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[ThreadCall | None] = SimpleQueue()
        self._ended: deque[ThreadCall] = deque()
        self._slots = asyncio.Semaphore(limit)
        self._signalled = False
        self._started = 0
        self._taken = 0

    async def free(self) -> None:
        """Waits until a thread is free and reserves it. The caller must at once call `start` to use the
        thread, or `leave` to give it back."""
        await self._slots.acquire()

    def leave(self) -> None:
        """Returns the thread that `free` reserved, without running anything in it."""
        self._slots.release()

    def start(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> ThreadCall:
        call = ThreadCall(function, args, kwargs, self._loop.create_future())
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
            threading.Thread(
                target=self._run_calls, name=f"tidemill-{self._started + 1}", daemon=True
            ).start()
        except RuntimeError:  # no thread left on this machine: the attempt fails and frees its place
            self._slots.release()
            raise
        self._started += 1

    def _run_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            self._ended.append(call)
            # Waking the loop is a system call: one is enough for all calls that have ended.
            if not self._signalled:
                self._signalled = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop is closed: the worker has ended
                    return

    def _collect(self) -> None:
        self._signalled = False  # cleared first: calls that end from here on signal again
        while self._ended:
            call = self._ended.popleft()
            self._taken -= 1
            self._slots.release()
            call.over = True
            if call.on_end is not None:
                call.on_end()
            elif call.future.cancelled():
                pass
            elif call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.result)
