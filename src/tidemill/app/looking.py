"""What is there, why it waits, and what would be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidemill.app.application import Application
from tidemill.client.request import JobRequest
from tidemill.client.task import Task

if TYPE_CHECKING:
    from tidemill.access.access import Access
    from tidemill.inspect.explanation import Explanation
    from tidemill.inspect.inspector import Inspector
    from tidemill.inspect.plan import Plan
    from tidemill.seam.registry import Web
    from tidemill.tallies.instruments import Instruments


class Looks(Application):
    @property
    def inspect(self) -> Inspector:
        """Look at queues and jobs, and change them: `await app.inspect.queue("feeds")`."""
        from tidemill.inspect.inspector import Inspector

        return Inspector(self.client.store, self.tasks, self.client.signals)

    @property
    def access(self) -> Access:
        """Tokens, and the audit log: `await app.access.tokens.create("ann", Role.OPERATOR)`."""
        from tidemill.access.access import Access

        return Access(self.client.store, self.clock, self.entropy, self.settings)

    @property
    def web(self) -> Web:
        """Add routes, pages and navigation to the API and the dashboard: `@app.web.page("/music", …)`."""
        if self._web is None:
            from tidemill.seam.registry import Web

            self._web = Web()
        return self._web

    @property
    def metrics(self) -> Instruments:
        """Counters, gauges and histograms of the application's own:
        `plays = app.metrics.counter("plays_total", "Songs played.")`, then `plays.add()`."""
        return self.tally.instruments

    async def exposition(self) -> str:
        """Every metric in the text format of Prometheus, the application's own included."""
        if self._exposition is None:
            from tidemill.metrics.exposition import Exposition

            self._exposition = Exposition(self.tally)
        return await self._exposition.text(await self.client.store())

    async def explain(self, id: str) -> Explanation:  # noqa: A002 - the word for it
        """Why a job waits, or what it does."""
        return await self.inspect.explain(id)

    async def plan(
        self,
        what: Task[Any, Any] | JobRequest[Any] | Iterable[JobRequest[Any]],
        *,
        count: int | None = None,
        takes: float | None = None,
    ) -> Plan:
        """When so many jobs would be done if they were sent now: `await app.plan(describe, count=12_000)`.

        Where cost or keys are computed from the arguments, give an example of a job,
        `app.plan(describe.job(chunk), count=12_000)`, or all of them as a list. `takes` is how many seconds
        a call is under way; without it the last jobs of the task are looked at. Nothing is sent."""
        from tidemill.client.planned import sendings
        from tidemill.inspect.planning import plan

        return await plan(await self.client.look(), sendings(what, count), takes, self.pools, self.queues)
