"""All viewers of a page share one rendering, and only while there are viewers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tidemill import Tidemill
from tidemill.http_routes.routes import StreamEvent
from tidemill.testing import VirtualClock, run_virtual
from tidemill.web import PageResponse, RouteRequest
from tidemill.web.live_views import REFRESH_SECONDS, LiveViews
from tidemill.web.redacted_inspector import RedactedInspector
from tidemill.web.renderer import Renderer

VIEWERS, SECONDS = 200, 60


class Sights:
    """A page that changes every ten seconds, and its viewers."""

    def __init__(self) -> None:
        self.live_views = LiveViews(VirtualClock())
        self.made = 0
        self.seen: list[list[StreamEvent]] = []

    async def make(self) -> dict[str, str]:
        self.made += 1
        return {"queues": f"{self.made // 10}", "still": "the same"}

    async def watch(self, last: str | None = None) -> list[StreamEvent]:
        seen: list[StreamEvent] = []
        self.seen.append(seen)
        async for event in self.live_views.watch("/", self.make, last):
            seen += [event] if event.name else []
        return seen


def seen_by(viewers: int, then: Callable[[Sights], Coroutine[Any, Any, None]] | None = None) -> Sights:
    async def main() -> Sights:
        sights = Sights()
        tasks = [asyncio.create_task(sights.watch()) for _ in range(viewers)]
        await asyncio.sleep(SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if then:
            await then(sights)
        return sights

    return run_virtual(main())


def test_two_hundred_viewers_share_one_rendering() -> None:
    alone, together = seen_by(1), seen_by(VIEWERS)
    assert alone.made == together.made
    assert SECONDS / REFRESH_SECONDS - 1 <= alone.made <= SECONDS / REFRESH_SECONDS + 1
    assert together.seen == alone.seen * VIEWERS


def test_only_changed_parts_are_sent() -> None:
    named = Counter(event.name for event in seen_by(1).seen[0])
    assert named["still"] == 1
    assert named["queues"] == SECONDS // 10 + 1


def test_nothing_is_rendered_without_viewers() -> None:
    async def wait(sights: Sights) -> None:
        before = sights.made
        await asyncio.sleep(SECONDS)
        assert (sights.made, len(sights.live_views)) == (before, 0)

    seen_by(3, wait)


def test_a_reconnect_receives_changed_parts() -> None:
    async def come_back(sights: Sights) -> None:
        last = sights.seen[0][-1].id
        sights.made -= 1  # the same number again, so nothing changed
        again = asyncio.create_task(sights.watch(last))
        await asyncio.sleep(REFRESH_SECONDS / 2)
        assert sights.seen[-1] == []
        await asyncio.sleep(10 * REFRESH_SECONDS)
        assert [event.name for event in sights.seen[-1]] == ["queues"]
        again.cancel()

    seen_by(1, come_back)


PARTS = "{% macro loud(text) %}<b>{{ text }}</b>{% endmacro %}"
TOPS = {
    "import": ('{% import "parts.html" as parts %}', "{{ parts.loud(song) }}"),
    "from": ('{% from "parts.html" import loud %}', "{{ loud(song) }}"),
    "set": ("{% set greeting = song %}", "<b>{{ greeting }}</b>"),
}
FRAMES = {
    "in the frame": '{% extends "layout.html" %}\n',
    "by itself": "",
}


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("frame", FRAMES)
async def test_a_block_has_the_imports_of_its_template(tmp_path: Path, top: str, frame: str) -> None:
    says, shows = TOPS[top]
    (tmp_path / "parts.html").write_text(PARTS)
    block = "{% block main %}{% block figures %}" + shows + "{% endblock %}{% endblock %}"
    (tmp_path / "songs.html").write_text(f"{FRAMES[frame]}{says}\n{block}")
    async with Tidemill("memory://") as app:
        app.web.templates(tmp_path)
        request = RouteRequest(app=app, inspect=RedactedInspector(app), live_views=LiveViews(app.clock))
        page = PageResponse("songs.html", {"song": "<风>"}, live=("figures",))
        assert Renderer(app).blocks("", request, page) == {"figures": "<b>&lt;风&gt;</b>"}
