"""The inspector that handlers get: what it shows of jobs is without secrets, so no page can show one."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec.structs import replace

from tidemill.access.redacting import Redactor
from tidemill.app import Tidemill
from tidemill.contract.reader import LOOKS, Page
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.inspector import Inspector
from tidemill.inspect.views import Count, JobView


class Shown(Inspector):
    """`redactor` is for what else may hold one, such as the arguments of a schedule."""

    def __init__(self, app: Tidemill) -> None:
        super().__init__(app.client.store, app.tasks, app.client.signals)
        self.redactor = Redactor(app.tasks, app.settings.value("web.redact"))

    async def find(
        self,
        wanted: Filter,
        *,
        limit: int = 100,
        cursor: int | None = None,
        looks: int | None = LOOKS,
    ) -> Page:
        """A job in which only a secret matches is not on the page, which may be shorter for that."""
        self.redactor.refuse_secrets(checked(wanted))
        page = await super().find(wanted, limit=limit, cursor=cursor, looks=looks)
        shown = tuple(self.redactor.job(job) for job in page.jobs if self.redactor.shows(wanted, job))
        return replace(page, jobs=shown)

    async def each(self, wanted: Filter) -> AsyncIterator[Job]:
        self.redactor.refuse_secrets(checked(wanted))
        async for job in super().each(wanted):
            if self.redactor.shows(wanted, job):
                yield self.redactor.job(job)

    async def count(self, wanted: Filter, *, looks: int | None = LOOKS) -> Count:
        self.redactor.refuse_secrets(checked(wanted))
        if wanted.text is None:
            return await super().count(wanted, looks=looks)
        if looks is None:
            return Count(sum([1 async for _ in self.each(wanted)]))
        page = await (await self._store()).find(wanted, looks, looks=looks)
        met = sum(self.redactor.shows(wanted, job) for job in page.jobs)
        return Count(met, more=page.cursor is not None)

    async def explain(self, id: str) -> Explanation:  # noqa: A002 - the word for it
        explanation = await super().explain(id)
        [job] = await (await self._store()).get([id])
        return self.redactor.explanation(explanation, job)

    async def job(self, id: str) -> JobView:  # noqa: A002 - the word for it
        return self.redactor.view(await super().job(id))
