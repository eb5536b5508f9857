"""Keeps open pages up to date.

A live view is one page for one role in one language. The server renders it at most once per second, for all
its viewers together. Each viewer receives only the named parts of the page that changed, such as a table."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from html import escape

from tidemill.clock import Clock
from tidemill.errors import TidemillError
from tidemill.http_routes.problems import INTERNAL_ERROR
from tidemill.http_routes.routes import StreamEvent

RenderParts = Callable[[], Awaitable[dict[str, str]]]

REFRESH_SECONDS = 1.0
RENDER_COST_FACTOR = 20
"""A view that took 0.1 s to render is rendered every 2 s, so a page uses at most a twentieth of a core."""
KEEPALIVE_SECONDS = 15.0
"""Each viewer receives at least a keep-alive this often, so that lost viewers are noticed and proxies stay
open."""
MAX_WATCH_SECONDS = 600.0
"""After this time a viewer has to reconnect and is authenticated again: its session may have ended."""
PROBLEM_PART = "problem"
KEEPALIVE = StreamEvent("", "")


class LiveView:
    """One page that viewers watch. `render` returns the text of each part of the page, such as a table, by
    name. A viewer receives only the parts that changed since its last event."""

    def __init__(self, render: RenderParts, clock: Clock) -> None:
        self._render, self._clock = render, clock
        self._changed = asyncio.Event()
        self._parts: dict[str, tuple[int, str]] = {}
        self._number, self._digest = 0, ""
        self._ended = False
        self.render_count = 0
        self.viewers = 0

    async def refresh_loop(self) -> None:
        while True:
            began = self._clock.boot()
            await self._refresh()
            seconds = self._clock.boot() - began
            await asyncio.sleep(max(REFRESH_SECONDS - seconds, RENDER_COST_FACTOR * seconds))

    def end(self) -> None:
        """Ends the streams of all viewers."""
        self._ended = True
        self._changed.set()

    async def watch(self, last: str | None) -> AsyncIterator[StreamEvent]:
        """Yields an event for each changed part, and a keep-alive event after 15 seconds without changes.
        Ends after 10 minutes. `last`: the id of the viewer's last event, None for a new viewer."""
        began, seen = self._clock.boot(), 0
        while not self._ended and self._clock.boot() - began < MAX_WATCH_SECONDS:
            if not await self._newer_than(seen):
                yield KEEPALIVE
                continue
            changed_parts, seen = self._since(seen), self._number
            if self._digest != last:
                for name, text in changed_parts:
                    yield StreamEvent(name, text, id=self._digest)
            last = None

    async def _newer_than(self, seen: int) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEPALIVE_SECONDS):
                while self._number <= seen and not self._ended:
                    await self._changed.wait()
        return self._number > seen

    def _since(self, seen: int) -> list[tuple[str, str]]:
        return [(name, text) for name, (number, text) in self._parts.items() if number > seen]

    async def _refresh(self) -> None:
        self.render_count += 1
        try:
            parts = {**await self._render(), PROBLEM_PART: ""}
        except TidemillError as error:
            parts = {PROBLEM_PART: escape(str(error))}
        except Exception:
            logging.getLogger("tidemill").exception("a live view could not be rendered")
            parts = {PROBLEM_PART: escape(INTERNAL_ERROR.detail)}
        changed_parts = {
            name: text for name, text in parts.items() if self._parts.get(name, (0, None))[1] != text
        }
        if not changed_parts:
            return
        self._number += 1
        self._parts |= {name: (self._number, text) for name, text in changed_parts.items()}
        self._digest = _parts_digest(self._parts)
        previous, self._changed = self._changed, asyncio.Event()
        previous.set()


def _parts_digest(parts: Mapping[str, tuple[int, str]]) -> str:
    joined = "\0".join(f"{name}\0{text}" for name, (_, text) in sorted(parts.items()))
    return hashlib.blake2s(joined.encode(), digest_size=8).hexdigest()


class LiveViews:
    """All live views that have viewers now. A live view starts with its first viewer and ends with its
    last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._views: dict[Hashable, tuple[LiveView, asyncio.Task[None]]] = {}

    async def watch(
        self, key: Hashable, render: RenderParts, last: str | None = None
    ) -> AsyncIterator[StreamEvent]:
        if key not in self._views:
            view = LiveView(render, self._clock)
            self._views[key] = view, asyncio.create_task(view.refresh_loop(), name=f"live view of {key}")
        view, refresh_task = self._views[key]
        view.viewers += 1
        try:
            async for event in view.watch(last):
                yield event
        finally:
            view.viewers -= 1
            if not view.viewers:
                refresh_task.cancel()
                self._views.pop(key, None)

    def close(self) -> None:
        for view, refresh_task in self._views.values():
            refresh_task.cancel()
            view.end()

    def __len__(self) -> int:
        return len(self._views)
