"""The inspector that handlers get: what it shows of jobs is without secrets, so no page can show one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TypeVar

from msgspec.structs import replace

from tidemill.access.redacting import PageBudget, Redactor, searches_values, size_of
from tidemill.app import Tidemill
from tidemill.contract.reader import LOOKS, Page
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.secrecy import Budget
from tidemill.inspect.bulk import COUNTED
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.inspector import Inspector
from tidemill.inspect.views import Count, JobView
from tidemill.schedules.views import ScheduleView

T = TypeVar("T")

_SMALL_BYTES = 64 * 1024
"""As much is redacted on the event loop: it takes less than the way to a thread and back."""
_CHUNK = 100
"""Jobs that a search by value loads at a time: a payload may have a megabyte."""


class Shown(Inspector):
    """`redactor` is for what else may hold one, such as the arguments of a schedule."""

    def __init__(self, app: Tidemill) -> None:
        super().__init__(app.client.store, app.tasks, app.client.signals)
        self.redactor = Redactor(app.secrets)
        self._no_such_text = app.entropy.secret()
        # One thread: many large pages at once take turns, and leave the other half of the time to the loop.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidemill-redaction")

    async def find(
        self,
        wanted: Filter,
        *,
        limit: int = 100,
        cursor: int | None = None,
        looks: int | None = LOOKS,
    ) -> Page:
        """A search by value answers what can be seen: jobs in which only a secret matches change nothing,
        neither the page nor its cursor nor whether it is partial."""
        self.redactor.refuse_secrets(checked(wanted))
        if searches_values(wanted):
            page = await self._find_visible(wanted, limit, cursor, looks)
        else:
            page = await super().find(wanted, limit=limit, cursor=cursor, looks=looks)
        return replace(page, jobs=tuple(await self._redacted(page.jobs)))

    async def each(self, wanted: Filter) -> AsyncIterator[Job]:
        self.redactor.refuse_secrets(checked(wanted))
        async with aclosing(self._visible(wanted, None, None)) as jobs:
            async for job in jobs:
                [shown] = await self._redacted([job])
                yield shown

    async def count(self, wanted: Filter, *, looks: int | None = LOOKS) -> Count:
        self.redactor.refuse_secrets(checked(wanted))
        if not searches_values(wanted):
            return await super().count(wanted, looks=looks)
        if looks is None:
            async with aclosing(self._visible(wanted, None, None)) as jobs:
                return Count(sum([1 async for _ in jobs]))
        page = await self._find_visible(wanted, COUNTED, None, looks)
        return Count(len(page.jobs), more=page.cursor is not None)

    async def explain(self, id: str) -> Explanation:  # noqa: A002 - the word for it
        explanation = await super().explain(id)
        [job] = await (await self._store()).get([id])
        size = 0 if job is None else size_of(job)
        return await self._beside(size, lambda: self.redactor.explanation(explanation, job))

    async def job(self, id: str) -> JobView:  # noqa: A002 - the word for it
        view = await super().job(id)
        size = size_of(view.job) + sum(len(line.line) for line in view.log)
        return await self._beside(size, lambda: self.redactor.view(view))

    async def schedules(self, views: Sequence[ScheduleView]) -> list[ScheduleView]:
        """The same schedules, without the secrets in their arguments."""
        budget, size = Budget(), sum(len(bytes(view.arguments)) for view in views)
        return await self._beside(size, lambda: [self.redactor.schedule(view, budget) for view in views])

    async def _find_visible(self, wanted: Filter, limit: int, cursor: int | None, looks: int | None) -> Page:
        floor = None if looks is None else await self._floor(wanted, cursor, looks)
        found: list[Job] = []
        async with aclosing(self._visible(wanted, cursor, floor)) as jobs:
            async for job in jobs:
                if len(found) == limit:
                    return Page(tuple(found), found[-1].seq)
                found.append(job)
        return Page(tuple(found), floor, partial=floor is not None)

    async def _floor(self, wanted: Filter, cursor: int | None, looks: int) -> int | None:
        """Where a search ends for which so many jobs are looked at; None when that is all of them. No job has
        the text that is looked for, so the end does not depend on what is hidden in any."""
        nothing = replace(wanted, text=self._no_such_text, fields=())
        page = await (await self._store()).find(nothing, 1, cursor, looks)
        return page.cursor

    async def _visible(self, wanted: Filter, cursor: int | None, floor: int | None) -> AsyncGenerator[Job]:
        """The jobs from `cursor` down to `floor` that match by what can be seen of them, newest first."""
        store = await self._store()
        while True:
            page = await store.find(wanted, _CHUNK, cursor, LOOKS)
            inside = [job for job in page.jobs if floor is None or job.seq >= floor]
            for job in await self._matching(wanted, inside):
                yield job
            cursor = page.cursor
            if cursor is None or (floor is not None and cursor <= floor):
                return

    async def _matching(self, wanted: Filter, jobs: Sequence[Job]) -> list[Job]:
        if not searches_values(wanted):
            return list(jobs)
        return await self._beside(
            sum(map(size_of, jobs)), lambda: [job for job in jobs if self.redactor.shows(wanted, job)]
        )

    async def _redacted(self, jobs: Sequence[Job]) -> list[Job]:
        budget = PageBudget()
        return await self._beside(
            sum(map(size_of, jobs)), lambda: [self.redactor.job(job, budget) for job in jobs]
        )

    async def _beside(self, size: int, work: Callable[[], T]) -> T:
        """Beside the event loop when there is much to redact: other requests and jobs go on meanwhile."""
        if size <= _SMALL_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
