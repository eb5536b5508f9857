"""Every article again, watched until it is done (E10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tidemill_apps.articles.glance import Glance, Line

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles

LOOK_EVERY = 0.5
UNSERVED = 10.0
"""Seconds without a worker after which nobody waits any longer."""
NAMED = 5

Tell = Callable[["Standing"], None]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """`asked` articles were asked for; `left` of them, and of others, are not done with; `failed` of those
    that have content and are not hidden failed. `rest`: the queue is full, and more are to come. `served`:
    some worker embeds."""

    asked: int
    left: int
    failed: int
    rest: bool
    served: bool


class Reembedding:
    def __init__(self, articles: Articles, unserved: float = UNSERVED) -> None:
        self._articles, self._unserved = articles, unserved
        self._glance = Glance(articles.posts)
        self._asked, self._after = 0, 0
        self._rest = True

    async def ask(self) -> Standing:
        """For as many as there is room for."""
        asked, rest = await self._articles.requests.request_until_full(self._after)
        self._asked, self._rest = self._asked + asked, rest is not None
        self._after = self._after if rest is None else rest
        return await self.standing()

    async def wait(self, tell: Tell) -> Standing:
        """Until all are done with, or nobody embeds."""
        clock = self._articles.app.clock
        seen = clock.boot()
        while True:
            standing = await (self.ask() if self._rest else self.standing())
            tell(standing)
            seen = clock.boot() if standing.served else seen
            if not (standing.left or standing.rest) or clock.boot() - seen >= self._unserved:
                return standing
            await asyncio.sleep(LOOK_EVERY)

    async def standing(self) -> Standing:
        counts = await self._articles.posts.counts()
        queue = await self._articles.app.inspect.queue(self._articles.queue, sparing=True)
        return Standing(
            asked=self._asked,
            left=counts["pending"] + counts["processing"],
            failed=await self._glance.shown_failed(),
            rest=self._rest,
            served=bool(queue.workers),
        )

    async def failures(self) -> list[Line]:
        return await self._glance.failed(NAMED, hidden=False)
