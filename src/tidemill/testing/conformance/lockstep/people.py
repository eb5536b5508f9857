"""Chores, people who change jobs and queues, and the passing of time."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule
from msgspec import UNSET, UnsetType

from tidemill.contract.store import Store
from tidemill.core.changes import Change
from tidemill.core.filters import Filter
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.testing.conformance import strategies as some
from tidemill.testing.conformance.lockstep.pair import Pair

HOURS = (1, -1, 24, -24)


class People(Pair):
    @rule(dead=st.lists(some.workers, max_size=1))
    def reclaim(self, dead: list[str]) -> None:
        self.both(lambda store: store.reclaim(dead))

    @rule(limit=some.mostly(1000, 1, 3))
    def prune(self, limit: int) -> None:
        self.both(lambda store: store.prune(limit))

    @rule(wanted=some.filters, change=some.changes, limit=st.sampled_from((2, 1000)))
    def amend(self, wanted: Filter, change: Change, limit: int) -> None:
        self.both(lambda store: store.amend(wanted, change, limit))

    @rule(data=st.data(), change=some.changes)
    def amend_one(self, data: st.DataObject, change: Change) -> None:
        jobs = self.jobs()
        if jobs:
            self.amend(Filter(ids=(data.draw(st.sampled_from(jobs)).id,)), change, 1)

    @rule(queue=some.queues, settings=some.settings)
    def declare(self, queue: str, settings: QueueSettings) -> None:
        self.both(lambda store: store.declare({queue: settings}))

    @rule(
        queue=some.queues,
        changes=some.queue_changes,
        seconds=st.sampled_from((UNSET, UNSET, None, 0.0, 1.0, 20.0)),
    )
    def override(self, queue: str, changes: QueueChanges, seconds: float | UnsetType | None) -> None:
        until = self.clock.wall() + seconds if isinstance(seconds, float) else seconds
        self.both(lambda store: store.override(queue, changes, by="ann", reason="why", until=until))

    @rule(queue=some.queues, names=some.override_names)
    def clear_override(self, queue: str, names: list[str]) -> None:
        self.both(lambda store: store.clear_override(queue, names))

    @rule(queue=some.queues, seconds=st.sampled_from((0.0, 0.0, 1.0, 20.0, None)))
    def pause_or_resume(self, queue: str, seconds: float | None) -> None:
        if seconds == 0:
            self.both(lambda store: store.resume(queue))
        else:
            until = None if seconds is None else self.clock.wall() + seconds
            self.both(lambda store: store.pause(queue, until=until, reason="why"))

    @rule(
        worker=some.workers,
        duties=st.lists(st.sampled_from(("one", "two")), unique=True),
        lease=st.sampled_from((5.0, 50.0)),
        resign=st.booleans(),
    )
    def lead(self, worker: str, duties: list[str], lease: float, resign: bool) -> None:
        self.both(lambda store: store.lead(duties, worker, lease))
        if resign:
            self.both(lambda store: store.resign(duties, worker))

    @rule(seconds=some.mostly(1.0, 0.5, 5.0, 15.0, 31.0))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(
        change=st.sampled_from(("hours pass", "step", "step and reclaim", "reopen", "reboot")),
        hours=st.sampled_from(HOURS),
    )
    def upheaval(self, change: str, hours: int) -> None:
        if change == "hours pass":
            self.clock.advance(abs(hours) * 3600.0)
        elif change == "step":
            self.clock.step_wall(hours * 3600.0)
        elif change == "step and reclaim":  # while leases hold: by chance they would be over by then
            self.clock.step_wall(hours * 3600.0)
            self.reclaim([])
        else:
            if change == "reboot":
                self.clock.reboot()
            self.model, self.store = self.opened_again(self.model), self.opened_again(self.store)

    def opened_again(self, store: Store) -> Store:
        opened = self.wait(store.another().open())
        self.wait(store.close())
        return opened
