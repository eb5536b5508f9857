"""Why nothing is embedded for now: no call is made through the pool, or Qdrant cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill import Filter, Job, State
from tidemill_apps.articles.glance import Glance
from tidemill_apps.articles.qdrant import SETTING
from tidemill_apps.common.shut import Shut, shut

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles

LOOKED = 100
"""Jobs that were put off are looked at: while Qdrant is away, nearly each is for that."""


class Holding:
    def __init__(self, articles: Articles) -> None:
        self._articles, self._glance = articles, Glance(articles.posts)

    async def shut(self) -> Shut | None:
        return await shut(self._articles.app, self._articles.pool.name)

    async def away(self) -> str | None:
        """What is wrong with Qdrant, as this process has found it of late. One that has not asked goes by
        the jobs that other processes have put off for it, and by the articles they try again."""
        seen = self._articles.vectors.seen()
        if seen is not None:
            return seen.problem
        put_off = Filter(queue=self._articles.queue, states=(State.SCHEDULED,), text=SETTING)
        for job in (await self._articles.app.inspect.find(put_off, limit=1, looks=LOOKED)).jobs:
            return _why(job)
        return await self._glance.tried_again(SETTING)

    async def reason(self) -> str | None:
        closed = await self.shut()
        return await self.away() if closed is None else closed.reason


def _why(job: Job) -> str | None:
    """A write that Qdrant refused is an error of the attempt, a Qdrant that is away a note."""
    if job.error is not None and SETTING in job.error.message:
        return job.error.message
    return job.note
