"""Where the heartbeat runs: in a thread of its own, or on the worker's loop for virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from tidemill.contract.store import Store
from tidemill.worker.heartbeat import Heartbeat


class OnLoop:
    """Beats on the worker's own loop, with the worker's own store handle."""

    def __init__(self, heartbeat: Heartbeat, store: Store) -> None:
        self._task = asyncio.create_task(heartbeat.run(store))

    def stop(self) -> None:
        self._task.cancel()

    async def stopped(self, within: float) -> None:
        await asyncio.wait([self._task], timeout=within)


class InThread:
    """Beats whatever the worker's loop does. A heartbeat that dies of a bug is started again."""

    def __init__(self, heartbeat: Heartbeat, store: Store) -> None:
        self._heartbeat, self._store = heartbeat, store
        self._loop = asyncio.new_event_loop()
        self._stopping = threading.Event()
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._serve, name="tidemill-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        with contextlib.suppress(RuntimeError):  # the thread may have closed its loop already
            self._loop.call_soon_threadsafe(self._cancel)

    async def stopped(self, within: float) -> None:
        """A store that hangs may keep the thread longer; it does not keep the process."""
        await asyncio.to_thread(self._thread.join, within)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _serve(self) -> None:
        with (
            asyncio.Runner(loop_factory=lambda: self._loop) as runner,
            contextlib.suppress(asyncio.CancelledError),
        ):
            runner.run(self._beat_on())

    async def _beat_on(self) -> None:
        self._main = asyncio.current_task()
        while not self._stopping.is_set():
            store = self._store.another()
            try:
                await store.open()
                await self._heartbeat.run(store)
            except Exception as error:  # noqa: BLE001 - a worker without a heartbeat loses everything it holds
                self._heartbeat.broke(error)
                await asyncio.sleep(1)
            finally:
                await store.close()
