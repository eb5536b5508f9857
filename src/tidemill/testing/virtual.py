"""An event loop whose time is computed: a test waits for days in milliseconds.

    async def scenario() -> None:
        await asyncio.sleep(86_400)          # takes no time at all
        ...

    run_virtual(scenario(), seed=7)

When nothing is ready, time jumps to the next timer. When nothing is left to wait for, the
test hangs for ever in real life; here it is a `VirtualDeadlock` that says so. Nothing reads
the machine's clock and nothing runs in threads, so the same seed gives the same run.

`VirtualLoop.spawn` starts a process inside the loop that can be killed and paused at any
await (see `virtual_processes`). Processes ready at the same instant take turns in an order
drawn from the seed; inside a process callbacks keep asyncio's order.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

from tidemill.testing.apart import call_apart
from tidemill.testing.refusals import NoSockets
from tidemill.testing.virtual_processes import Process, bury, context_of, owner_of

T = TypeVar("T")

START = 1_893_456_000.0
"""The wall time a virtual history starts at unless told otherwise: 2030-01-01 UTC."""

STANDSTILL = 1_000_000
"""So many callbacks without time moving are a busy loop, not work."""


class VirtualDeadlock(RuntimeError):
    """Everything waits and nothing is left that could wake anything."""


class VirtualStandstill(RuntimeError):
    """Something spins: callbacks run on and on while time stands still."""


class _Handle(asyncio.Handle):
    __slots__ = ("process",)
    process: Process | None


class _Timer(asyncio.TimerHandle):
    __slots__ = ("process",)
    process: Process | None


class VirtualLoop(NoSockets):
    """No selector, no threads, no sockets; `time()` starts at 0."""

    def __init__(self, *, seed: int = 0, start: float = START) -> None:
        super().__init__()
        self.epoch = start
        self._now = 0.0
        self._order = random.Random(seed)  # noqa: S311 - a seed that can be replayed is the point
        self._queue: deque[_Handle | _Timer] = deque()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timers_made = 0
        self._spins = 0
        self._processes: list[Process] = []

    def time(self) -> float:
        return self._now

    def spawn(self, name: str, main: Coroutine[Any, Any, T]) -> tuple[Process, asyncio.Task[T]]:
        """Run `main`, and whatever it starts, as a process of its own."""
        process = Process(name, self._resume_later)
        self._processes.append(process)
        return process, self.create_task(main, name=name, context=context_of(process))

    def signal(self, process: Process, callback: Callable[[], object]) -> None:
        """Run `callback` inside the process, as a signal handler would; late if it is paused."""
        self.call_soon(callback, context=context_of(process))

    def outside(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `main` in no process: what another machine does on behalf of one that may die."""
        return self.create_task(main, context=context_of(None))

    def call_soon(  # type: ignore[override]  # typeshed spells the variadic parameters
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self._require_open()
        handle = _Handle(callback, args, self, context)
        handle.process = owner_of(context)
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
        timer = _Timer(when, callback, args, self, context)
        timer.process = owner_of(context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, timer))
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
        if (process := owner_of(context)) is not None:
            process.adopt(task)
        return task

    def run_in_executor(  # type: ignore[override]  # typeshed spells the variadic parameters
        self,
        executor: object,  # noqa: ARG002 - there are no threads to choose from
        func: Callable[..., T],
        *args: Any,
    ) -> asyncio.Future[T]:
        """Runs `func` at once, on the loop's own thread; no time passes meanwhile. As in a thread, it
        sees no running loop."""
        future = cast("asyncio.Future[T]", self.create_future())
        try:
            future.set_result(call_apart(func, *args))
        except Exception as error:  # noqa: BLE001 - the caller's to handle, as from a thread
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Ends what is left; a killed process's `finally` blocks run here, when nothing watches."""
        if self.is_closed():
            return
        super().close()
        self._queue.clear()
        self._timers.clear()
        bury(list(asyncio.all_tasks(self)))
        for process in self._processes:
            process.bury()

    def living_tasks(self) -> set[asyncio.Task[Any]]:
        """Every unfinished task except those of killed processes."""
        dead = {task for process in self._processes for task in process.remains}
        return asyncio.all_tasks(self) - dead

    def _require_open(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def _run_once(self) -> None:
        self._advance()
        for handle in self._take_turns():
            process = handle.process
            if process is None:
                _run(handle)
            elif process.alive and process.paused:
                process.hold(handle)
            elif process.alive and not handle.cancelled():
                _run(handle)
                process.count_step()

    def _advance(self) -> None:
        """Jump to the next timer when nothing is ready, then make ready what is due."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._queue and not getattr(self, "_stopping", False):
            if not self._timers:
                raise VirtualDeadlock(self._deadlock())
            if self._timers[0][0] > self._now:
                self._now = self._timers[0][0]
                self._spins = 0
        while self._timers and self._timers[0][0] <= self._now:
            self._queue.append(heapq.heappop(self._timers)[2])
        self._spins += len(self._queue)
        if self._spins > STANDSTILL:
            raise VirtualStandstill(
                f"more than {STANDSTILL} callbacks ran at virtual second {self._now}: does something wait "
                "without sleeping, or does a task enqueue itself without end?"
            )

    def _take_turns(self) -> list[_Handle | _Timer]:
        """What is ready now: in order inside a process, processes interleaved by the seed."""
        ready, self._queue = self._queue, deque()
        lines: dict[Process | None, deque[_Handle | _Timer]] = {}
        for handle in ready:
            lines.setdefault(handle.process, deque()).append(handle)
        if len(lines) < 2:  # noqa: PLR2004 - one line needs no turns
            return list(ready)
        waiting, turns = list(lines.values()), []
        while waiting:
            line = waiting[self._order.randrange(len(waiting))]
            turns.append(line.popleft())
            if not line:
                waiting.remove(line)
        return turns

    def _resume_later(self, seconds: float, resume: Callable[[], None]) -> None:
        self.call_later(seconds, self._resume, resume, context=context_of(None))

    def _resume(self, resume: Callable[[], None]) -> None:
        resume()
        for process in self._processes:
            if process.alive and not process.paused:
                self._queue.extend(cast("deque[_Handle | _Timer]", process.take_held()))

    def _deadlock(self) -> str:
        waiting = [task.get_name() for task in self.living_tasks()]
        shown = ", ".join(sorted(waiting)[:10])
        return f"deadlock in virtual time: {len(waiting)} tasks wait and no timer is set ({shown})"


class VirtualClock:
    """`tidemill.clock.Clock` on a loop's virtual time. `skew` is by how much its wall is wrong."""

    def __init__(self, loop: VirtualLoop | None = None, *, skew: float = 0.0) -> None:
        self._loop = loop or cast("VirtualLoop", asyncio.get_running_loop())
        self._skew = skew
        self._boots = 1

    @property
    def boot_id(self) -> str:
        return f"virtual boot {self._boots}"

    def wall(self) -> float:
        return self._loop.epoch + self._loop.time() + self._skew

    def boot(self) -> float:
        return self._loop.time()

    def step_wall(self, seconds: float) -> None:
        """Somebody set the clock: wall time jumps, boot time does not notice."""
        self._skew += seconds

    def reboot(self) -> None:
        """The machine came up anew: boot times of before mean nothing any more."""
        self._boots += 1


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int = 0, start: float = START) -> T:
    """`asyncio.run` in virtual time. `start` is the wall time it begins at."""
    loop = VirtualLoop(seed=seed, start=start)
    try:
        return loop.run_until_complete(main)
    finally:
        cancel_rest(loop)
        loop.close()


def cancel_rest(loop: VirtualLoop) -> None:
    tasks = loop.living_tasks()
    for task in tasks:
        task.cancel()
    with contextlib.suppress(VirtualDeadlock, VirtualStandstill):  # a task refuses to end: close() buries it
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()  # noqa: SLF001 - what a loop does with its handles
