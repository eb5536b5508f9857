"""However many look at a page, it is made once, and only while somebody does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.seam.answers import Event
from tidemill.testing import VirtualClock, run_virtual
from tidemill.web.live import EVERY, Looks

VIEWERS, SECONDS = 200, 60


class Sights:
    """A page that changes every ten seconds, as a number of viewers see it."""

    def __init__(self) -> None:
        self.looks = Looks(VirtualClock())
        self.made = 0
        self.seen: list[list[Event]] = []

    async def make(self) -> dict[str, str]:
        self.made += 1
        return {"queues": f"{self.made // 10}", "still": "the same"}

    async def watch(self, last: str | None = None) -> list[Event]:
        seen: list[Event] = []
        self.seen.append(seen)
        async for event in self.looks.watch("/", self.make, last):
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


def test_two_hundred_viewers_cost_as_many_looks_as_one() -> None:
    alone, together = seen_by(1), seen_by(VIEWERS)
    assert alone.made == together.made
    assert SECONDS / EVERY - 1 <= alone.made <= SECONDS / EVERY + 1
    assert together.seen == alone.seen * VIEWERS


def test_only_what_changed_is_sent() -> None:
    named = Counter(event.name for event in seen_by(1).seen[0])
    assert named["still"] == 1
    assert named["queues"] == SECONDS // 10 + 1


def test_nothing_is_made_when_nobody_looks() -> None:
    async def wait(sights: Sights) -> None:
        before = sights.made
        await asyncio.sleep(SECONDS)
        assert (sights.made, len(sights.looks)) == (before, 0)

    seen_by(3, wait)


def test_who_comes_back_is_sent_what_changed_since() -> None:
    async def come_back(sights: Sights) -> None:
        last = sights.seen[0][-1].id
        sights.made -= 1  # the same number again: nothing changed meanwhile
        again = asyncio.create_task(sights.watch(last))
        await asyncio.sleep(EVERY / 2)
        assert sights.seen[-1] == []
        await asyncio.sleep(10 * EVERY)
        assert [event.name for event in sights.seen[-1]] == ["queues"]
        again.cancel()

    seen_by(1, come_back)
