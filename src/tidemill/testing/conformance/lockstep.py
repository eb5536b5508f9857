"""A state machine that drives a store side by side with the memory store.

Both are told the same, under one clock and with the same randomness; every answer and, after
every step, everything a reader can see must be equal. A store's author writes::

    def test_lockstep(tmp_path_factory):
        run_lockstep(lambda clock, entropy: MyStore(tmp_path_factory.mktemp("jobs"), ...), arrive)

`TIDEMILL_LOCKSTEP_EXAMPLES` and `TIDEMILL_LOCKSTEP_STEPS` ask for longer runs than 100 histories
of 50 steps.
A failure prints the shortest history that shows it, and how to replay it.
"""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from operator import methodcaller
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from tidemill.contract.jobs import Admission, Refused
from tidemill.contract.store import Store
from tidemill.core.changes import Change
from tidemill.core.claims import Claimed, ClaimRequest, Claims, Heartbeat, Held, Said, Settlement, Share
from tidemill.core.filters import Filter
from tidemill.core.job import Group, Job, NewJob
from tidemill.core.outcomes import Outcome
from tidemill.core.queues import Inserted, QueueChanges, QueueSettings
from tidemill.core.states import State
from tidemill.errors import TidemillError
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance import strategies as some
from tidemill.testing.conformance.difference import difference
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.manual import ManualClock, SeededEntropy

T = TypeVar("T")

EXAMPLES = int(os.environ.get("TIDEMILL_LOCKSTEP_EXAMPLES", "100"))
STEPS = int(os.environ.get("TIDEMILL_LOCKSTEP_STEPS", "50"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
EVERYTHING = 10_000
DIFFERS = "the store differs from the model"
HOURS = (1, -1, 24, -24)


async def arrive_in_memory(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
    assert isinstance(store, MemoryStore)
    store.arrive(job, task, payload, options)


def run_lockstep(make_store: MakeStore, arrive: Arrive, using: settings = SETTINGS) -> None:
    """Raises AssertionError with the shortest history in which the store differs from the model.

    `make_store` is called once per history and must give an empty store each time."""

    class Machine(Lockstep):
        def __init__(self) -> None:
            super().__init__(make_store, arrive)

    run_state_machine_as_test(Machine, settings=using)


class Lockstep(RuleBasedStateMachine):
    def __init__(self, make_store: MakeStore, arrive: Arrive) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.arrive = arrive
        self.model: Store = self.wait(MemoryStore(self.clock, SeededEntropy(1)).open())
        self.store: Store = self.wait(make_store(self.clock, SeededEntropy(1)).open())
        self.claims: list[Claimed] = []
        self.requests: dict[str, list[ClaimRequest]] = {worker: [] for worker in some.WORKERS}
        self.numbers: Counter[str] = Counter()
        self.used = 0

    def wait(self, what: Awaitable[T]) -> T:
        return self.loop.run_until_complete(_awaited(what))

    def both(self, verb: Callable[[Store], Awaitable[T]]) -> T | str:
        """The verb on model and store; the answers must be equal, refusals included."""
        expected = self.wait(_answer(verb(self.model)))
        answer = self.wait(_answer(verb(self.store)))
        if _comparable(answer) != _comparable(expected):
            raise AssertionError(f"{DIFFERS}:\n{difference(answer, expected)}")
        return expected

    def teardown(self) -> None:
        try:
            self.readers_agree_on_details()
        finally:
            self.wait(self.model.close())
            self.wait(self.store.close())
            self.loop.close()

    # -- jobs come in

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

    # -- jobs are claimed

    @rule(worker=some.workers, shares=some.shares, limit=some.limits, lease=st.sampled_from((10.0, 30.0)))
    def claim(self, worker: str, shares: list[tuple[str, int]], limit: int, lease: float) -> None:
        request = self.request(worker, shares=shares, limit=limit, lease=lease)
        self.claimed(self.both(lambda store: store.claim(request)))

    @rule(worker=some.workers)
    def claim_much(self, worker: str) -> None:
        self.claim(worker, [("a", 5), ("b", 5)], 10, 30.0)

    @rule(worker=some.workers, named=st.lists(some.known_ids, max_size=6), limit=some.limits)
    def claim_by_ids(self, worker: str, named: list[str], limit: int) -> None:
        request = self.request(worker, limit=limit, named=tuple(named))
        self.claimed(self.both(lambda store: store.claim(request)))

    @rule(worker=some.workers, back=st.integers(1, 2))
    def claim_again(self, worker: str, back: int) -> None:
        if len(self.requests[worker]) >= back:
            request = self.requests[worker][-back]
            self.claimed(self.both(lambda store: store.claim(request)))

    def request(
        self,
        worker: str,
        *,
        limit: int,
        shares: list[tuple[str, int]] | None = None,
        lease: float = 30.0,
        named: tuple[str, ...] | None = None,
    ) -> ClaimRequest:
        self.numbers[worker] += 1
        request = ClaimRequest(
            worker=worker,
            number=self.numbers[worker],
            shares=tuple(Share(queue, jobs) for queue, jobs in shares or ()),
            limit=limit,
            lease=lease,
            ids=named,
        )
        self.requests[worker].append(request)
        return request

    def claimed(self, claims: Claims | str) -> None:
        if isinstance(claims, Claims):
            self.claims.extend(claims.jobs)

    # -- holders speak, the late ones too

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), worker=st.one_of(st.none(), some.workers), limit=some.limits)
    def settle(self, data: st.DataObject, worker: str | None, limit: int) -> None:
        named = data.draw(st.lists(st.tuples(self.some_claims(), some.outcomes), min_size=1, max_size=4))
        items = [_settlement(claimed, outcome) for claimed, outcome in named]
        shares = [(queue, limit) for queue in some.QUEUES]
        request = None if worker is None else self.request(worker, shares=shares, limit=limit)
        settled = self.both(lambda store: store.settle(items, request))
        if not isinstance(settled, str) and settled.claims is not None:
            self.claimed(settled.claims)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def settle_only(self, data: st.DataObject) -> None:
        self.settle(data, None, 0)

    @rule(data=st.data(), worker=some.workers, unheard=st.integers(0, 1), lease=st.sampled_from((10.0, 30.0)))
    def heartbeat(self, data: st.DataObject, worker: str, unheard: int, lease: float) -> None:
        held = data.draw(st.lists(self.some_claims().flatmap(_held), max_size=4)) if self.claims else []
        beat = Heartbeat(
            worker=worker,
            received=max(0, self.numbers[worker] - unheard),
            lease=lease,
            held=tuple(held),
            host="host",
            pid=1,
            queues=("a",),
            concurrency=2,
        )
        self.both(lambda store: store.extend(beat))

    def some_claims(self) -> st.SearchStrategy[Claimed]:
        """Claims that may be current, and any that ever was."""
        running = {(job.id, job.claim) for job in self.jobs() if job.state is State.RUNNING}
        current = [claimed for claimed in self.claims if (claimed.id, claimed.claim) in running]
        anything = st.sampled_from(self.claims)
        return st.one_of(st.sampled_from(current), anything) if current else anything

    # -- chores and people

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

    @rule(queue=some.queues, changes=some.queue_changes, seconds=some.mostly(None, 0.0, 1.0, 20.0))
    def override(self, queue: str, changes: QueueChanges | None, seconds: float | None) -> None:
        until = None if seconds is None else self.clock.wall() + seconds
        self.both(lambda store: store.override(queue, changes, by="ann", reason="why", until=until))

    @rule(queue=some.queues, seconds=st.sampled_from((0.0, 0.0, 1.0, 20.0, None)))
    def pause_or_resume(self, queue: str, seconds: float | None) -> None:
        if seconds == 0:
            self.both(lambda store: store.resume(queue))
        else:
            until = None if seconds is None else self.clock.wall() + seconds
            self.both(lambda store: store.pause(queue, until=until, reason="why"))

    @rule(worker=some.workers, lease=st.sampled_from((5.0, 50.0)), resign=st.booleans())
    def lead(self, worker: str, lease: float, resign: bool) -> None:
        self.both(lambda store: store.lead("duty", worker, lease))
        if resign:
            self.both(lambda store: store.resign("duty", worker))

    # -- time

    @rule(seconds=some.mostly(1.0, 0.5, 5.0, 15.0, 31.0))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(
        change=st.sampled_from(("hours pass", "step", "step", "reopen", "reboot")),
        hours=st.sampled_from(HOURS),
    )
    def upheaval(self, change: str, hours: int) -> None:
        if change == "hours pass":
            self.clock.advance(abs(hours) * 3600.0)
        elif change == "step":
            self.clock.step_wall(hours * 3600.0)
        else:
            if change == "reboot":
                self.clock.reboot()
            self.model, self.store = self.opened_again(self.model), self.opened_again(self.store)

    def opened_again(self, store: Store) -> Store:
        opened = self.wait(store.another().open())
        self.wait(store.close())
        return opened

    # -- everything a reader can see

    @rule(wanted=some.filters, limit=st.integers(1, 4))
    def find_page_by_page(self, wanted: Filter, limit: int) -> None:
        cursor: int | None = None
        while True:
            page = self.both(methodcaller("find", wanted, limit, cursor))
            if isinstance(page, str) or page.cursor is None:
                return
            cursor = page.cursor

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
        for queue in some.QUEUES:
            self.both(methodcaller("history", queue, 0.0))
            self.both(methodcaller("backlog", queue))
        self.both(lambda store: store.workers())
        self.both(_arrivals)

    def jobs(self) -> tuple[Job, ...]:
        page = self.both(lambda store: store.find(Filter(), EVERYTHING))
        assert not isinstance(page, str)
        return page.jobs


async def _admit(store: Store, queue: str, verdict: NewJob | None) -> int:
    """Everything that waits: the newest as told, what was left before it refused."""
    refused = Refused(queue=queue, error=some.OOPS)
    waiting = await store.arrivals(EVERYTHING)
    admissions = [Admission(arrival, queue, refused) for arrival in waiting[:-1]]
    return await store.admit([*admissions, Admission(waiting[-1], queue, verdict or refused)])


async def _arrivals(store: Store) -> list[tuple[str, str, bytes, bytes]]:
    """Numbers and times of arrivals are whatever the outsider's database made of them."""
    waiting = await store.arrivals(EVERYTHING)
    return [(arrival.id, arrival.task, arrival.payload, arrival.options) for arrival in waiting]


def _settlement(claimed: Claimed, outcome: Outcome) -> Settlement:
    return Settlement(claimed.id, claimed.fence, claimed.claim, outcome)


def _held(claimed: Claimed) -> st.SearchStrategy[Held]:
    return st.builds(
        Held,
        job=st.just(claimed.id),
        fence=st.just(claimed.fence),
        claim=st.just(claimed.claim),
        renew=st.booleans(),
        progress=st.sampled_from((None, 0.5)),
        note=st.sampled_from((None, "half")),
        log=st.sampled_from(((), (Said("one", 2.0), Said("two")))),
    )


async def _awaited(what: Awaitable[T]) -> T:
    return await what


async def _answer(verb: Awaitable[T]) -> T | str:
    try:
        return await verb
    except TidemillError as error:
        return type(error).__name__


def _comparable(answer: Any) -> Any:
    """Sentences are each store's own; that there is one is not."""
    if isinstance(answer, list):
        return [_comparable(item) for item in answer]
    if isinstance(answer, Inserted):
        return (answer.verdict, answer.id, bool(answer.problem))
    return answer
