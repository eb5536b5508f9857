"""An event loop in a thread, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from tidemill.errors import ConfigurationError, StoreUnavailable

T = TypeVar("T")


class Portal:
    """Started by the first call, stopped by `stop`. The thread never keeps a program alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        return self._loop is not None

    def is_here(self) -> bool:
        """Whether the caller runs on the portal's own thread, where nothing may wait for the portal."""
        return self._thread is threading.current_thread()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the portal's loop and wait for it."""
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
            # An interrupted caller must not leave its work behind.
            future.cancel()
            raise

    def stop(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_the_rest(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="tidemill portal", daemon=True
                )
                self._thread.start()
            return self._loop


def refuse_on_a_loop(verb: str) -> None:
    """A blocking verb on an event loop's thread stops the loop, and hangs for good when what it
    waits for is to be done by that loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"{verb}_sync was called on the thread of a running event loop, which it would stop; "
        f"there, write `await {verb}(…)`"
    )


def refuse_running(work: Coroutine[Any, Any, Any]) -> None:
    """The same for `run_sync`, whose coroutine is made already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    work.close()  # or Python warns that nobody awaited it
    raise ConfigurationError(
        "run_sync was called on the thread of a running event loop, which it would stop; "
        "there, await what it was given"
    )


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
