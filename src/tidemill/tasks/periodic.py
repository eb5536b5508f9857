"""Periodic functions of an application: `@app.periodic("reconcile", every=60)`."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from tidemill.core.validation import problem_with_name
from tidemill.errors import ConfigurationError
from tidemill.times import parse_seconds

T = TypeVar("T")


def periodic_topic(name: str) -> str:
    """Returns the topic of wake-ups for the periodic function `name`."""
    return f"periodic:{name}"


class PeriodicFunction(Generic[T]):
    """A function that workers call again and again, without jobs; `app.periodic` creates it.

    - `every`: seconds from the start of one run to the start of the next
    - `retry_in`: seconds until the next run after a failed one
    - `on_every_worker`: False if one worker at a time runs it, True if each worker does

    Call the object to run the function once, for example in a test."""

    def __init__(
        self,
        name: str,
        function: Callable[[], Awaitable[T]],
        *,
        every: float | timedelta,
        retry_in: float | timedelta | None,
        on_every_worker: bool,
        send_wakeup: Callable[[str], None],
    ) -> None:
        if problem := problem_with_name("name", name):
            raise ConfigurationError(f"periodic: {problem}")
        if not inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"periodic {name!r}: must be an async function without arguments")
        self.name, self.function, self.on_every_worker = name, function, on_every_worker
        self.every = _check_seconds(name, "every", every)
        self.retry_in = self.every if retry_in is None else _check_seconds(name, "retry_in", retry_in)
        self._send_wakeup = send_wakeup
        self._wakers: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    async def __call__(self) -> T:
        return await self.function()

    def wake(self) -> None:
        """Requests a run now, from any thread. The request also reaches a worker in another process.

        Several requests before the run starts lead to one run. If a request is lost, the next run comes at
        its usual time."""
        with self._lock:
            wakers = list(self._wakers)
        for waker in wakers:
            waker()
        if not wakers:
            self._send_wakeup(periodic_topic(self.name))

    def attach(self, waker: Callable[[], None]) -> None:
        """Adds a function that `wake` calls. A running worker uses it."""
        with self._lock:
            self._wakers.append(waker)

    def detach(self, waker: Callable[[], None]) -> None:
        with self._lock:
            self._wakers.remove(waker)


def _check_seconds(name: str, field: str, value: Any) -> float:
    seconds = parse_seconds(f"periodic {name!r}: {field}", value, ConfigurationError)
    if seconds <= 0:
        raise ConfigurationError(
            f"periodic {name!r}: {field}: must be a number of seconds above 0, is {value!r}"
        )
    return seconds
