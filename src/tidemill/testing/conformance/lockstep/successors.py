"""What is under way is asked for again, and then it ends."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from tidemill.core.claims import Claimed, Settlement
from tidemill.core.job import Group, NewJob
from tidemill.core.outcomes import Done, Outcome
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.testing.conformance import strategies as some
from tidemill.testing.conformance.lockstep.holders import Holders
from tidemill.testing.conformance.lockstep.incoming import Incoming

ends: st.SearchStrategy[Outcome | None] = st.one_of(st.none(), st.just(Done()), some.outcomes)


class Successors(Incoming, Holders):
    @precondition(lambda self: self.claims)
    @rule(data=st.data(), job=some.new_jobs, unique=some.uniques, end=ends)
    def ask_again_for_what_runs(
        self, data: st.DataObject, job: NewJob, unique: Unique, end: Outcome | None
    ) -> None:
        """By chance a request that finds its holder running, and the holder's end, would be rare."""
        keys = {(one.id, one.claim): one.unique_key for one in self.jobs() if one.state is State.RUNNING}
        held = [claimed for claimed in self.claims if keys.get((claimed.id, claimed.claim))]
        if not held:
            return
        holder: Claimed = data.draw(st.sampled_from(held))
        key = keys[holder.id, holder.claim]
        self.insert([Group(holder.queue, (replace(job, unique=replace(unique, key=key)),))])
        if end is not None:
            ended = Settlement(holder.id, holder.fence, holder.claim, end)
            self.both(lambda store: store.settle([ended]))
