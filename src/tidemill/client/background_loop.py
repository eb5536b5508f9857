"""An event loop in a background thread, for programs that have no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from tidemill.errors import ConfigurationError, StoreUnavailable

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines on an event loop in a daemon thread. The first call of `run` starts the thread, `stop`
    ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        return self._loop is not None

    def is_here(self) -> bool:
        """True if the caller runs on the thread of this event loop, where it must not wait for the loop."""
        return self._thread is threading.current_thread()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on this event loop, waits for it and returns its result. `work` is a function that
        creates the coroutine."""
        if self.is_here():
            raise ConfigurationError(
                "a `…_sync` verb was called inside what `run_sync` runs, and would wait for itself; "
                "there, await the verb without `_sync`"
            )
        future = asyncio.run_coroutine_threadsafe(work(), self._running_loop())
        try:
            return future.result()
        except CancelledError:
            raise StoreUnavailable("the application was closed while this call waited") from None
        except BaseException:
            # Cancels the work if the caller is interrupted.
            future.cancel()
            raise

    def stop(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_remaining_tasks(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="tidemill background loop", daemon=True
                )
                self._thread.start()
            return self._loop


def refuse_on_loop(verb: str) -> None:
    """Raises ConfigurationError on the thread of a running event loop, because a blocking call would stop the
    loop.

    `verb`: the name of the blocking method without `_sync`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"{verb}_sync was called on the thread of a running event loop, which it would stop; "
        f"there, write `await {verb}(…)`"
    )


def refuse_run_sync_on_loop(work: Coroutine[Any, Any, Any]) -> None:
    """Raises ConfigurationError on the thread of a running event loop, and closes the coroutine `work`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    work.close()  # avoids the warning about a coroutine that was never awaited
    raise ConfigurationError(
        "run_sync was called on the thread of a running event loop, which it would stop; "
        "there, await what it was given"
    )


async def _cancel_remaining_tasks() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
