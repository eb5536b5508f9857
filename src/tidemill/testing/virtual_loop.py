"""An event loop with virtual time: sleeping for a day takes milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import random
from asyncio.tasks import _enter_task, _leave_task
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, cast

from tidemill.testing.virtual_processes import (
    VirtualProcess,
    close_dead_tasks,
    context_for_process,
    process_of_context,
)

ResultT = TypeVar("ResultT")


@contextmanager
def hide_running_loop() -> Iterator[None]:
    """Until the block ends, asyncio reports that no event loop runs in this thread."""
    loop = asyncio._get_running_loop()  # noqa: SLF001 - documented for implementers of event loops
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


def call_without_loop(function: Callable[..., ResultT], *args: Any, **kwargs: Any) -> ResultT:
    """Calls the function as if in another thread, and returns its result. The function sees no running loop
    and gets a copy of the context."""
    with hide_running_loop():
        return contextvars.copy_context().run(function, *args, **kwargs)


def run_on_new_loop(main: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Runs a coroutine on a new event loop and returns its result, even if another loop runs in this
    thread."""
    with hide_running_loop():
        return asyncio.run(main)


class UnsupportedInVirtualTime(NotImplementedError):
    """Raised if code opens a socket, a pipe or a process on a virtual loop."""


class SocketlessEventLoop(asyncio.BaseEventLoop):
    """Base class of event loops without I/O. Its network and process methods raise
    UnsupportedInVirtualTime."""


def _refuse_call(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedInVirtualTime(
            f"{name}: virtual time has no sockets, pipes or processes. Give the code under test a fake "
            "instead, or test it on an ordinary loop: an async test without @pytest.mark.tidemill"
        )

    refuse.__name__ = name
    return refuse


for _name in (
    "add_reader",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_sendall",
    "sock_sendto",
    "subprocess_exec",
    "subprocess_shell",
):
    setattr(SocketlessEventLoop, _name, _refuse_call(_name))


T = TypeVar("T")

START_TIME = 1_893_456_000.0
"""The default wall time at the start of a virtual loop: 2030-01-01 UTC."""

MAX_CALLBACKS_PER_INSTANT = 1_000_000
"""More callbacks than this at one instant are a busy loop."""


class VirtualDeadlock(RuntimeError):
    """Raised if every task waits and no timer is left to wake one."""


class VirtualStandstill(RuntimeError):
    """Raised if callbacks run endlessly while time stands still."""


class _VirtualHandle(asyncio.Handle):
    __slots__ = ("process",)
    process: VirtualProcess | None


class _VirtualTimer(asyncio.TimerHandle):
    __slots__ = ("process",)
    process: VirtualProcess | None


class VirtualLoop(SocketlessEventLoop):
    """An event loop in virtual time: when all tasks wait, the time jumps to the next timer. It has no threads
    and no sockets.

    - `start`: the wall time at the start; `time()` starts at 0.
    - `seed`: determines the order in which virtual processes run.
    """

    def __init__(self, *, seed: int = 0, start: float = START_TIME) -> None:
        super().__init__()
        self.epoch = start
        self._now = 0.0
        self._order = random.Random(seed)  # noqa: S311 - deterministic on purpose
        self._queue: deque[_VirtualHandle | _VirtualTimer] = deque()
        self._timers: list[tuple[float, int, _VirtualTimer]] = []
        self._timer_count = 0
        self._callbacks_at_instant = 0
        self._processes: list[VirtualProcess] = []

    def time(self) -> float:
        return self._now

    def spawn(self, name: str, main: Coroutine[Any, Any, T]) -> tuple[VirtualProcess, asyncio.Task[T]]:
        """Starts `main` as a virtual process and returns the process and its task. Everything that `main`
        starts belongs to the process."""
        process = VirtualProcess(name, self._resume_later)
        self._processes.append(process)
        return process, self.create_task(main, name=name, context=context_for_process(process))

    def signal(self, process: VirtualProcess, callback: Callable[[], object]) -> None:
        """Runs `callback` inside the process like a signal handler. A paused process runs it later."""
        self.call_soon(callback, context=context_for_process(process))

    def outside(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts `main` outside of all virtual processes and returns its task. It continues when the caller's
        process is killed, like a remote machine."""
        return self.create_task(main, context=context_for_process(None))

    def call_soon(  # type: ignore[override]  # typeshed spells the variadic parameters
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self._require_open()
        handle = _VirtualHandle(callback, args, self, context)
        handle.process = process_of_context(context)
        self._queue.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]  # typeshed spells the variadic parameters
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        self._require_open()
        timer = _VirtualTimer(when, callback, args, self, context)
        timer.process = process_of_context(context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        task = super().create_task(coro, name=name, context=context, **options)
        if (process := process_of_context(context)) is not None:
            process.add_task(task)
        return task

    def run_in_executor(  # type: ignore[override]  # typeshed spells the variadic parameters
        self,
        executor: object,  # noqa: ARG002 - there are no threads
        func: Callable[..., T],
        *args: Any,
    ) -> asyncio.Future[T]:
        """Runs `func` at once on the loop's thread. No virtual time passes. Like in a thread, `func` sees
        no running loop."""
        future = cast("asyncio.Future[T]", self.create_future())
        try:
            future.set_result(call_without_loop(func, *args))
        except Exception as error:  # noqa: BLE001 - the caller handles it, as from a thread
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Closes the loop and ends all unfinished tasks. A killed process runs no `finally` blocks during the
        test; they run here."""
        if self.is_closed():
            return
        super().close()
        self._queue.clear()
        self._timers.clear()
        close_dead_tasks(list(asyncio.all_tasks(self)))
        for process in self._processes:
            process.close_dead_tasks()

    def live_tasks(self) -> set[asyncio.Task[Any]]:
        """Returns every unfinished task, except those of killed processes."""
        dead = {task for process in self._processes for task in process.dead_tasks}
        return asyncio.all_tasks(self) - dead

    def _require_open(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def _run_once(self) -> None:
        self._advance()
        for handle in self._interleave_processes():
            process = handle.process
            if process is None:
                _run_handle(handle)
            elif process.alive and process.paused:
                process.hold(handle)
            elif process.alive and not handle.cancelled():
                _run_handle(handle)
                process.count_step()

    def _advance(self) -> None:
        """Jumps to the next timer if nothing is ready, then makes the due timers ready."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._queue and not getattr(self, "_stopping", False):
            if not self._timers:
                raise VirtualDeadlock(self._deadlock())
            if self._timers[0][0] > self._now:
                self._now = self._timers[0][0]
                self._callbacks_at_instant = 0
        while self._timers and self._timers[0][0] <= self._now:
            self._queue.append(heapq.heappop(self._timers)[2])
        self._callbacks_at_instant += len(self._queue)
        if self._callbacks_at_instant > MAX_CALLBACKS_PER_INSTANT:
            raise VirtualStandstill(
                f"more than {MAX_CALLBACKS_PER_INSTANT} callbacks ran at virtual second {self._now}: does "
                "something wait without sleeping, or does a task enqueue itself without end?"
            )

    def _interleave_processes(self) -> list[_VirtualHandle | _VirtualTimer]:
        """Returns the ready callbacks in a random order, but those of one process in their own order."""
        ready, self._queue = self._queue, deque()
        lines: dict[VirtualProcess | None, deque[_VirtualHandle | _VirtualTimer]] = {}
        for handle in ready:
            lines.setdefault(handle.process, deque()).append(handle)
        if len(lines) < 2:  # noqa: PLR2004 - a single process needs no interleaving
            return list(ready)
        waiting, turns = list(lines.values()), []
        while waiting:
            line = waiting[self._order.randrange(len(waiting))]
            turns.append(line.popleft())
            if not line:
                waiting.remove(line)
        return turns

    def _resume_later(self, seconds: float, resume: Callable[[], None]) -> None:
        self.call_later(seconds, self._resume, resume, context=context_for_process(None))

    def _resume(self, resume: Callable[[], None]) -> None:
        resume()
        for process in self._processes:
            if process.alive and not process.paused:
                self._queue.extend(cast("deque[_VirtualHandle | _VirtualTimer]", process.take_held()))

    def _deadlock(self) -> str:
        waiting = [task.get_name() for task in self.live_tasks()]
        shown = ", ".join(sorted(waiting)[:10])
        return f"deadlock in virtual time: {len(waiting)} tasks wait and no timer is set ({shown})"


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int = 0, start: float = START_TIME) -> T:
    """Runs a coroutine like `asyncio.run`, in virtual time. `start` is the wall time at the start."""
    loop = VirtualLoop(seed=seed, start=start)
    try:
        return loop.run_until_complete(main)
    finally:
        cancel_remaining_tasks(loop)
        loop.close()


def cancel_remaining_tasks(loop: VirtualLoop) -> None:
    tasks = loop.live_tasks()
    for task in tasks:
        task.cancel()
    with contextlib.suppress(VirtualDeadlock, VirtualStandstill):  # a task refuses to end: close() closes it
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _run_handle(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()  # noqa: SLF001 - an event loop runs its handles this way
