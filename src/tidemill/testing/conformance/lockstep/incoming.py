"""Jobs come in: inserted in groups, or as requests from outside."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from msgspec.structs import replace

from tidemill.contract.jobs import Admission, Refused
from tidemill.contract.store import Store
from tidemill.core.job import Group, NewJob
from tidemill.core.needs import Need
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance import metering
from tidemill.testing.conformance import strategies as some
from tidemill.testing.conformance.lockstep.pair import EVERYTHING, Pair


async def arrive_in_memory(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
    assert isinstance(store, MemoryStore)
    store.arrive(job, task, payload, options)


class Incoming(Pair):
    @initialize(groups=st.lists(some.groups, min_size=3, max_size=4))
    def some_jobs_to_begin_with(self, groups: list[Group]) -> None:
        self.insert(groups)

    @rule(groups=st.lists(some.groups, min_size=1, max_size=2))
    def insert(self, groups: list[Group]) -> None:
        named = [Group(group.queue, tuple(map(self.named, group.jobs))) for group in groups]
        self.both(lambda store: store.insert(named))

    @rule(group=some.groups)
    def insert_one_group(self, group: Group) -> None:
        self.insert([group])

    @rule(group=some.groups)
    def insert_something_invalid(self, group: Group) -> None:
        last = replace(group.jobs[-1], priority=10**6)
        self.insert([Group(group.queue, (*group.jobs[:-1], last))])

    @rule(group=some.groups, needs=metering.needs)
    def insert_with_needs(self, group: Group, needs: tuple[Need, ...]) -> None:
        self.insert([Group(group.queue, tuple(replace(job, needs=needs) for job in group.jobs))])

    def named(self, job: NewJob) -> NewJob:
        if job.id != some.FRESH:
            return job
        self.used += 1
        return replace(job, id=f"job-{self.used}")

    @rule(queue=some.queues, job=some.new_jobs, verdict=st.sampled_from(("good", "bad", "later")))
    def an_arrival(self, queue: str, job: NewJob, verdict: str) -> None:
        job = self.named(job)
        for store, arrive in ((self.model, arrive_in_memory), (self.store, self.arrive)):
            self.wait(arrive(store, job.id, job.task, job.payload, b"{}"))
        if verdict != "later":
            self.both(lambda store: _admit(store, queue, job if verdict == "good" else None))


async def _admit(store: Store, queue: str, verdict: NewJob | None) -> int:
    """Everything that waits: the newest as told, what was left before it refused."""
    refused = Refused(queue=queue, error=some.OOPS)
    waiting = await store.arrivals(EVERYTHING)
    admissions = [Admission(arrival, queue, refused) for arrival in waiting[:-1]]
    return await store.admit([*admissions, Admission(waiting[-1], queue, verdict or refused)])
