"""Everything a reader can see, page by page and after every step."""

from __future__ import annotations

from operator import methodcaller

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.testing.conformance import strategies as some
from tidemill.testing.conformance.lockstep.pair import EVERYTHING, Pair
from tidemill.testing.conformance.metering import POOLS


class Readers(Pair):
    @rule(wanted=some.filters, limit=st.integers(1, 4))
    def find_page_by_page(self, wanted: Filter, limit: int) -> None:
        cursor: int | None = None
        while True:
            page = self.both(methodcaller("find", wanted, limit, cursor))
            if isinstance(page, str) or page.cursor is None:
                return
            cursor = page.cursor

    @rule(text=some.texts)
    def search(self, text: str) -> None:
        """Among all filters a text that meets a job it nearly matches would be rare."""
        self.both(methodcaller("find", Filter(text=text), EVERYTHING))

    @invariant()
    def readers_agree(self) -> None:
        self.jobs()
        self.both(lambda store: store.counts())
        self.both(lambda store: store.queues())

    def readers_agree_on_details(self) -> None:
        for job in self.jobs():
            self.both(methodcaller("logs", job.id))
            self.both(methodcaller("attempts", job.id))
            self.both(methodcaller("ahead", job.id))
            self.both(methodcaller("checkpoints", job.id))
        for queue in some.QUEUES:
            self.both(methodcaller("history", queue, 0.0))
            self.both(methodcaller("backlog", queue))
        for pool in (*POOLS, "nobody"):
            self.both(methodcaller("pool_history", pool, 0.0))
        self.both(lambda store: store.demand())
        self.both(lambda store: store.workers())
        self.both(_arrivals)

    def teardown(self) -> None:
        try:
            self.readers_agree_on_details()
        finally:
            self.wait(self.model.close())
            self.wait(self.store.close())
            self.loop.close()


async def _arrivals(store: Store) -> list[tuple[str, str, bytes, bytes]]:
    """Numbers and times of arrivals are whatever the outsider's database made of them."""
    waiting = await store.arrivals(EVERYTHING)
    return [(arrival.id, arrival.task, arrival.payload, arrival.options) for arrival in waiting]
