"""Pools are declared, changed, closed and opened; more units are taken; providers speak."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tidemill.core.claims import Claimed
from tidemill.core.departures import Departure
from tidemill.core.needs import Need
from tidemill.core.pools import PoolChanges, PoolSettings
from tidemill.core.spending import Observation
from tidemill.testing.conformance import metering as some
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep.pair import Pair

SECONDS = st.sampled_from((None, 0.0, 1.0, 20.0))


class Meters(Pair):
    def __init__(self, make_store: MakeStore, arrive: Arrive) -> None:
        super().__init__(make_store, arrive)
        self.both(lambda store: store.declare_pools(some.POOLS))

    @rule(pool=some.declared)
    def declare_pool(self, pool: tuple[str, PoolSettings]) -> None:
        self.both(lambda store: store.declare_pools(dict([pool])))

    @rule(place=some.any_places, changes=some.pool_changes, seconds=SECONDS)
    def override_pool(
        self, place: tuple[str, str | None], changes: PoolChanges | None, seconds: float | None
    ) -> None:
        until = None if seconds is None else self.clock.wall() + seconds
        self.both(lambda store: store.override_pool(place[0], changes, by="ann", reason="why", until=until))

    @rule(place=some.any_places, seconds=SECONDS, close=st.sampled_from((True, False, False)))
    def close_or_open_pool(self, place: tuple[str, str | None], seconds: float | None, close: bool) -> None:
        pool, key = place
        if close:
            until = None if seconds is None else self.clock.wall() + seconds
            self.both(lambda store: store.close_pool(pool, key=key, until=until, by="ann"))
        else:
            self.both(lambda store: store.open_pool(pool, key=key))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), need=some.single_needs, departure=st.sampled_from((None, None, *Departure)))
    def reserve(self, data: st.DataObject, need: Need, departure: Departure | None) -> None:
        held: Claimed = data.draw(st.sampled_from(self.claims))
        self.both(lambda store: store.reserve(held.id, held.fence, held.claim, need, departure))

    @rule(observations=st.lists(some.observations, max_size=2))
    def observe(self, observations: list[Observation]) -> None:
        self.both(lambda store: store.observe(observations))

    @invariant()
    def pools_agree(self) -> None:
        self.both(lambda store: store.pools())
