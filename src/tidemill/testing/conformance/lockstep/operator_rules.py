"""Lockstep rules for operators and maintenance: amend, overrides, pauses, pools, clock changes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from msgspec import UNSET, UnsetType

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob
from tidemill.core.feedback import Observation
from tidemill.core.filters import Filter
from tidemill.core.late_calls import Departure
from tidemill.core.needs import Need
from tidemill.core.operator_changes import OperatorChange
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep import strategies as some
from tidemill.testing.conformance.lockstep.store_pair import StorePair

CLOCK_STEP_HOURS = (1, -1, 24, -24)
END_CHOICES = st.sampled_from((UNSET, UNSET, None, 0.0, 1.0, 20.0))


class OperatorRules(StorePair):
    @rule(dead=st.lists(some.workers, max_size=1))
    def reclaim(self, dead: list[str]) -> None:
        self.both(lambda store: store.reclaim(dead))

    @rule(limit=some.usually(1000, 1, 3))
    def prune(self, limit: int) -> None:
        self.both(lambda store: store.prune(limit))

    @rule(job_filter=some.filters, change=some.changes, limit=st.sampled_from((2, 1000)))
    def amend(self, job_filter: Filter, change: OperatorChange, limit: int) -> None:
        self.both(lambda store: store.amend(job_filter, change, limit))

    @rule(data=st.data(), change=some.changes)
    def amend_one(self, data: st.DataObject, change: OperatorChange) -> None:
        jobs = self.jobs()
        if jobs:
            self.amend(Filter(ids=(data.draw(st.sampled_from(jobs)).id,)), change, 1)

    @rule(queue=some.queues, settings=some.queue_settings)
    def declare(self, queue: str, settings: QueueSettings) -> None:
        self.both(lambda store: store.declare({queue: settings}))

    @rule(queue=some.queues, changes=some.queue_changes, seconds=END_CHOICES)
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

    @rule(seconds=some.usually(1.0, 0.5, 5.0, 15.0, 31.0))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(
        change=st.sampled_from(("hours pass", "step", "step and reclaim", "reopen", "reboot")),
        hours=st.sampled_from(CLOCK_STEP_HOURS),
    )
    def change_clock_or_reopen(self, change: str, hours: int) -> None:
        if change == "hours pass":
            self.clock.advance(abs(hours) * 3600.0)
        elif change == "step":
            self.clock.step_wall(hours * 3600.0)
        elif change == "step and reclaim":  # while leases still hold; at random they would have ended
            self.clock.step_wall(hours * 3600.0)
            self.reclaim([])
        else:
            if change == "reboot":
                self.clock.reboot()
            self.model, self.store = self.reopen_store(self.model), self.reopen_store(self.store)

    def reopen_store(self, store: Store) -> Store:
        opened = self.wait(store.new_handle().open())
        self.wait(store.close())
        return opened


SECONDS_CHOICES = st.sampled_from((None, 0.0, 1.0, 20.0))


class PoolRules(StorePair):
    def __init__(self, make_store: MakeStore, arrive: Arrive) -> None:
        super().__init__(make_store, arrive)
        self.both(lambda store: store.declare_pools(some.POOL_SETTINGS))

    @rule(pool=some.declarations)
    def declare_pool(self, pool: tuple[str, PoolSettings]) -> None:
        self.both(lambda store: store.declare_pools(dict([pool])))

    @rule(pool_key=some.any_pool_keys, changes=some.pool_changes, seconds=END_CHOICES)
    def override_pool(
        self, pool_key: tuple[str, str | None], changes: LimitChanges, seconds: float | UnsetType | None
    ) -> None:
        pool, until = pool_key[0], self.clock.wall() + seconds if isinstance(seconds, float) else seconds
        self.both(lambda store: store.override_pool(pool, changes, by="ann", reason="why", until=until))

    @rule(pool_key=some.any_pool_keys, names=some.limit_names)
    def clear_pool_override(self, pool_key: tuple[str, str | None], names: list[str]) -> None:
        self.both(lambda store: store.clear_pool_override(pool_key[0], names))

    @rule(pool_key=some.site_keys, changes=some.key_changes, seconds=END_CHOICES)
    def override_key(
        self, pool_key: tuple[str, str | None], changes: LimitChanges, seconds: float | UnsetType | None
    ) -> None:
        (pool, key), by = pool_key, "ann"
        until = self.clock.wall() + seconds if isinstance(seconds, float) else seconds
        self.both(lambda store: store.override_pool(pool, changes, key=key, by=by, until=until))

    @rule(pool_key=some.site_keys, names=some.key_limit_names)
    def clear_key_override(self, pool_key: tuple[str, str | None], names: list[str]) -> None:
        pool, key = pool_key
        self.both(lambda store: store.clear_pool_override(pool, names, key=key))

    @rule(pool_key=some.any_pool_keys, seconds=SECONDS_CHOICES, close=st.sampled_from((True, False, False)))
    def close_or_open_pool(
        self, pool_key: tuple[str, str | None], seconds: float | None, close: bool
    ) -> None:
        pool, key = pool_key
        if close:
            until = None if seconds is None else self.clock.wall() + seconds
            self.both(lambda store: store.close_pool(pool, key=key, until=until, by="ann"))
        else:
            self.both(lambda store: store.open_pool(pool, key=key))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), need=some.single_needs, departure=st.sampled_from((None, None, *Departure)))
    def reserve(self, data: st.DataObject, need: Need, departure: Departure | None) -> None:
        held: ClaimedJob = data.draw(st.sampled_from(self.claims))
        self.both(lambda store: store.reserve(held.id, held.fence, held.claim, need, departure))

    @rule(observations=st.lists(some.observations, max_size=2))
    def observe(self, observations: list[Observation]) -> None:
        self.both(lambda store: store.observe(observations))

    @invariant()
    def pools_agree(self) -> None:
        self.both(lambda store: store.pools())
