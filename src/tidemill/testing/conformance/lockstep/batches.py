"""Jobs that share calls come in, alone and in groups, and calls end as they began."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from msgspec.structs import replace

from tidemill.core.batching import Batching
from tidemill.core.claims import Claimed, Settlement
from tidemill.core.job import Group, NewJob
from tidemill.core.needs import Need
from tidemill.core.outcomes import Outcome, Release, Split
from tidemill.core.spending import Spent
from tidemill.testing.conformance import metering
from tidemill.testing.conformance import strategies as some
from tidemill.testing.conformance.lockstep.holders import Holders
from tidemill.testing.conformance.lockstep.incoming import Incoming

RULES = (
    Batching(max_items=3, linger=5.0),
    Batching(max_items=2),
    Batching(max_items=4, linger=20.0, max_units={"tokens": 250.0}),
    Batching(max_items=3, linger=2.0, call={"model": {"tokens": 30.0}}),
    Batching(max_items=0),
)
"""The last one is never taken, and the one before it only by jobs that need that pool."""
rules = st.sampled_from(RULES)
few_needs = st.one_of(st.just(()), st.just(()), st.sampled_from((some.MEETABLE[0], some.MEETABLE[4])))
fates: st.SearchStrategy[Outcome] = st.one_of(
    st.sampled_from((Split("1"), Split("2"), Release())), some.outcomes
)


class Batches(Incoming, Holders):
    @initialize(queue=some.queues, jobs=st.lists(some.new_jobs, min_size=3, max_size=5))
    def a_batch_to_begin_with(self, queue: str, jobs: list[NewJob]) -> None:
        self.insert_batch(queue, jobs, RULES[0], ())

    @rule(
        queue=some.queues,
        jobs=st.lists(some.new_jobs, min_size=1, max_size=5),
        batching=rules,
        needs=few_needs,
    )
    def insert_batch(
        self, queue: str, jobs: list[NewJob], batching: Batching, needs: tuple[Need, ...]
    ) -> None:
        """Of one task, and mostly with no key, so that they meet."""
        alike = [replace(job, task="batch", batching=batching, needs=needs, unique=None) for job in jobs]
        self.insert([Group(queue, tuple(alike))])

    @rule(queue=some.queues, job=some.new_jobs, batching=rules)
    def insert_into_batch(self, queue: str, job: NewJob, batching: Batching) -> None:
        """As any other job is sent, with whatever key and pools it has."""
        self.insert([Group(queue, (replace(job, task="batch", batching=batching),))])

    @rule(queue=some.queues, jobs=st.integers(2, 4), outcome=fates, key=some.mostly(None, "k"))
    def a_call_from_beginning_to_end(self, queue: str, jobs: int, outcome: Outcome, key: str | None) -> None:
        """By chance a whole one would be rare."""
        names = [self.named(NewJob(id=some.FRESH, task="batch", payload=b"{}")) for _ in range(jobs)]
        self.insert([Group(queue, tuple(replace(job, batching=RULES[1], key=key) for job in names))])
        before = len(self.claims)
        self.claim_much("w")
        items = [
            Settlement(job.id, job.fence, job.claim, outcome) for job in self.claims[before:] if job.call
        ]
        self.both(lambda store: store.settle(items))

    @precondition(lambda self: any(claimed.call for claimed in self.claims))
    @rule(data=st.data(), outcome=fates, spent=metering.spents)
    def settle_a_call(self, data: st.DataObject, outcome: Outcome, spent: Spent | None) -> None:
        """All of its jobs alike, as far as they are still held; the first one tells what was spent."""
        held: list[Claimed] = [claimed for claimed in self.claims if claimed.call]
        one = data.draw(st.sampled_from(held))
        items = [
            Settlement(job.id, job.fence, job.claim, outcome, spent if job.id == one.call else None)
            for job in {
                job.id: job for job in held if (job.call, job.claim) == (one.call, one.claim)
            }.values()
        ]
        self.both(lambda store: store.settle(items))
