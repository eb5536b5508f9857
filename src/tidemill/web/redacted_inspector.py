"""The inspector that handlers use: it removes secrets from jobs, so that no page can show one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TypeVar

from msgspec.structs import replace

from tidemill.app import Tidemill
from tidemill.auth.redaction import PageBudget, Redactor, redaction_bytes, searches_values
from tidemill.contract.reader import DEFAULT_SCAN_LIMIT, JobPage
from tidemill.core.filters import Filter, check_filter
from tidemill.core.jobs import Job
from tidemill.core.redaction import RedactionBudget
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.inspector import Inspector
from tidemill.inspect.jobs import MAX_COUNTED_JOBS
from tidemill.inspect.views import JobCount, JobView
from tidemill.schedules.views import ScheduleView

T = TypeVar("T")

_INLINE_REDACTION_BYTES = 64 * 1024
"""Up to this size redaction runs on the event loop, because a switch to a thread takes longer."""
_JOBS_PER_CHUNK = 100
"""Jobs that a search by value loads at a time; one payload may have a megabyte."""


class RedactedInspector(Inspector):
    """An inspector that hides secrets in the jobs it returns. `redactor` hides secrets in other values, such
    as the arguments of a schedule."""

    def __init__(self, app: Tidemill) -> None:
        super().__init__(app.client.store, app.tasks, app.client.signals)
        self.redactor = Redactor(app.secrets)
        self._unmatched_text = app.entropy.secret()
        # A single thread: several large pages take turns and leave the event loop half of the processor
        # time.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidemill-redaction")

    async def find(
        self,
        job_filter: Filter,
        *,
        limit: int = 100,
        cursor: int | None = None,
        scan_limit: int | None = DEFAULT_SCAN_LIMIT,
    ) -> JobPage:
        """Returns a page of matching jobs, newest first. Secrets are hidden, and a search does not find
        them."""
        self.redactor.refuse_secrets(check_filter(job_filter))
        if searches_values(job_filter):
            page = await self._find_visible(job_filter, limit, cursor, scan_limit)
        else:
            page = await super().find(job_filter, limit=limit, cursor=cursor, scan_limit=scan_limit)
        return replace(page, jobs=tuple(await self._redacted(page.jobs)))

    async def each(self, job_filter: Filter) -> AsyncIterator[Job]:
        self.redactor.refuse_secrets(check_filter(job_filter))
        async with aclosing(self._visible(job_filter, None, None)) as jobs:
            async for job in jobs:
                [shown] = await self._redacted([job])
                yield shown

    async def count(self, job_filter: Filter, *, scan_limit: int | None = DEFAULT_SCAN_LIMIT) -> JobCount:
        self.redactor.refuse_secrets(check_filter(job_filter))
        if not searches_values(job_filter):
            return await super().count(job_filter, scan_limit=scan_limit)
        if scan_limit is None:
            async with aclosing(self._visible(job_filter, None, None)) as jobs:
                return JobCount(sum([1 async for _ in jobs]))
        page = await self._find_visible(job_filter, MAX_COUNTED_JOBS, None, scan_limit)
        return JobCount(len(page.jobs), more=page.cursor is not None)

    async def explain(self, id: str) -> Explanation:  # noqa: A002 - the word for it
        explanation = await super().explain(id)
        [job] = await (await self._store()).get([id])
        size = 0 if job is None else redaction_bytes(job)
        return await self._run_redaction(size, lambda: self.redactor.explanation(explanation, job))

    async def job(self, id: str) -> JobView:  # noqa: A002 - the word for it
        view = await super().job(id)
        size = redaction_bytes(view.job) + sum(len(line.line) for line in view.log)
        return await self._run_redaction(size, lambda: self.redactor.view(view))

    async def schedules(self, views: Sequence[ScheduleView]) -> list[ScheduleView]:
        """Returns the schedules without the secrets in their arguments."""
        budget, size = RedactionBudget(), sum(len(bytes(view.arguments)) for view in views)
        return await self._run_redaction(
            size, lambda: [self.redactor.schedule(view, budget) for view in views]
        )

    async def _find_visible(
        self, job_filter: Filter, limit: int, cursor: int | None, scan_limit: int | None
    ) -> JobPage:
        scan_end = None if scan_limit is None else await self._scan_end(job_filter, cursor, scan_limit)
        found: list[Job] = []
        async with aclosing(self._visible(job_filter, cursor, scan_end)) as jobs:
            async for job in jobs:
                if len(found) == limit:
                    return JobPage(tuple(found), found[-1].seq)
                found.append(job)
        return JobPage(tuple(found), scan_end, partial=scan_end is not None)

    async def _scan_end(self, job_filter: Filter, cursor: int | None, scan_limit: int) -> int | None:
        """Returns the cursor at which a search stops after it has examined `scan_limit` jobs. Returns None if
        the search reaches the oldest job first."""
        # With the user's own text, the cursor would show whether a secret matched.
        nothing = replace(job_filter, text=self._unmatched_text, fields=())
        page = await (await self._store()).find(nothing, 1, cursor, scan_limit)
        return page.cursor

    async def _visible(
        self, job_filter: Filter, cursor: int | None, scan_end: int | None
    ) -> AsyncGenerator[Job]:
        """Yields the jobs whose visible values match, newest first, from `cursor` to `scan_end`.
        `cursor=None` starts at the newest job, `scan_end=None` continues to the oldest."""
        store = await self._store()
        while True:
            page = await store.find(job_filter, _JOBS_PER_CHUNK, cursor, DEFAULT_SCAN_LIMIT)
            inside = [job for job in page.jobs if scan_end is None or job.seq >= scan_end]
            for job in await self._matching(job_filter, inside):
                yield job
            cursor = page.cursor
            if cursor is None or (scan_end is not None and cursor <= scan_end):
                return

    async def _matching(self, job_filter: Filter, jobs: Sequence[Job]) -> list[Job]:
        if not searches_values(job_filter):
            return list(jobs)
        return await self._run_redaction(
            sum(map(redaction_bytes, jobs)),
            lambda: [job for job in jobs if self.redactor.matches_visible(job_filter, job)],
        )

    async def _redacted(self, jobs: Sequence[Job]) -> list[Job]:
        budget = PageBudget()
        return await self._run_redaction(
            sum(map(redaction_bytes, jobs)), lambda: [self.redactor.redacted_job(job, budget) for job in jobs]
        )

    async def _run_redaction(self, size: int, work: Callable[[], T]) -> T:
        """Returns the result of `work`, which redacts values of `size` bytes. Above 64 KiB, `work` runs in a
        thread."""
        if size <= _INLINE_REDACTION_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
