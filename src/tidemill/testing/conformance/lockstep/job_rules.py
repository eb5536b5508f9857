"""Lockstep rules for jobs: insert, claim, settle, heartbeat, batches, checkpoints."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from msgspec.structs import replace

from tidemill.contract.jobs import Admission, RejectedArrival
from tidemill.contract.store import Store
from tidemill.core.batching import BatchPolicy
from tidemill.core.checkpoints import StepAttempt, StepKey
from tidemill.core.claims import (
    ClaimedJob,
    ClaimRequest,
    ClaimResult,
    Heartbeat,
    HeldJob,
    LogEntry,
    QueueShare,
    Settlement,
)
from tidemill.core.feedback import UsageReport
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.needs import Need
from tidemill.core.outcomes import JobRelease, Outcome, SmallerBatch, Success
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance.lockstep import strategies
from tidemill.testing.conformance.lockstep import strategies as some
from tidemill.testing.conformance.lockstep.store_pair import MAX_JOBS, StorePair


async def arrive_in_memory(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
    assert isinstance(store, MemoryStore)
    store.arrive(job, task, payload, options)


class InsertRules(StorePair):
    @initialize(groups=st.lists(some.groups, min_size=3, max_size=4))
    def insert_initial_jobs(self, groups: list[JobGroup]) -> None:
        self.insert(groups)

    @rule(groups=st.lists(some.groups, min_size=1, max_size=2))
    def insert(self, groups: list[JobGroup]) -> None:
        named = [JobGroup(group.queue, tuple(map(self.named, group.jobs))) for group in groups]
        self.both(lambda store: store.insert(named))

    @rule(group=some.groups)
    def insert_one_group(self, group: JobGroup) -> None:
        self.insert([group])

    @rule(group=some.groups)
    def insert_invalid_job(self, group: JobGroup) -> None:
        last = replace(group.jobs[-1], priority=10**6)
        self.insert([JobGroup(group.queue, (*group.jobs[:-1], last))])

    @rule(group=some.groups, needs=strategies.needs)
    def insert_with_needs(self, group: JobGroup, needs: tuple[Need, ...]) -> None:
        self.insert([JobGroup(group.queue, tuple(replace(job, needs=needs) for job in group.jobs))])

    def named(self, job: NewJob) -> NewJob:
        if job.id != some.FRESH_ID:
            return job
        self.used += 1
        return replace(job, id=f"job-{self.used}")

    @rule(queue=some.queues, job=some.new_jobs, verdict=st.sampled_from(("good", "bad", "later")))
    def admit_arrival(self, queue: str, job: NewJob, verdict: str) -> None:
        job = self.named(job)
        for store, arrive in ((self.model, arrive_in_memory), (self.store, self.arrive)):
            self.wait(arrive(store, job.id, job.task, job.payload, b"{}"))
        if verdict != "later":
            self.both(lambda store: _admit_waiting(store, queue, job if verdict == "good" else None))


async def _admit_waiting(store: Store, queue: str, verdict: NewJob | None) -> int:
    """Rejects all waiting arrivals except the newest. The newest becomes the job `verdict`, or is rejected
    too if `verdict` is None. Returns how many arrivals the store has handled."""
    refused = RejectedArrival(queue=queue, error=some.STRATEGY_ERROR)
    waiting = await store.arrivals(MAX_JOBS)
    admissions = [Admission(arrival, queue, refused) for arrival in waiting[:-1]]
    return await store.admit([*admissions, Admission(waiting[-1], queue, verdict or refused)])


class ClaimRules(StorePair):
    @rule(worker=some.workers, shares=some.shares, limit=some.limits, lease=st.sampled_from((10.0, 30.0)))
    def claim(self, worker: str, shares: list[tuple[str, int]], limit: int, lease: float) -> None:
        request = self.request(worker, shares=shares, limit=limit, lease=lease)
        self.claimed(self.both(lambda store: store.claim(request)))

    @rule(worker=some.workers)
    def claim_many(self, worker: str) -> None:
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
            shares=tuple(QueueShare(queue, jobs) for queue, jobs in shares or ()),
            limit=limit,
            lease=lease,
            ids=named,
        )
        self.requests[worker].append(request)
        return request

    def claimed(self, claims: ClaimResult | str) -> None:
        if isinstance(claims, ClaimResult):
            self.claims.extend(claims.jobs)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), worker=st.one_of(st.none(), some.workers), limit=some.limits)
    def settle(self, data: st.DataObject, worker: str | None, limit: int) -> None:
        charged = st.one_of(st.none(), some.outcomes)
        settlement_arguments = st.tuples(
            self.some_claims(), some.outcomes, strategies.attempt_usages, charged
        )
        items = [
            _settlement(*arguments)
            for arguments in data.draw(st.lists(settlement_arguments, min_size=1, max_size=4))
        ]
        shares = [(queue, limit) for queue in some.QUEUES]
        request = None if worker is None else self.request(worker, shares=shares, limit=limit)
        settled = self.both(lambda store: store.settle(items, request))
        if not isinstance(settled, str) and settled.claims is not None:
            self.claimed(settled.claims)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def settle_only(self, data: st.DataObject) -> None:
        self.settle(data, None, 0)

    @rule(
        data=st.data(), worker=some.workers, unreceived=st.integers(0, 1), lease=st.sampled_from((10.0, 30.0))
    )
    def heartbeat(self, data: st.DataObject, worker: str, unreceived: int, lease: float) -> None:
        held = data.draw(st.lists(self.some_claims().flatmap(_held_job), max_size=4)) if self.claims else []
        self.send_heartbeat(worker, held, unreceived, lease)

    @rule(data=st.data(), worker=some.workers)
    def late_heartbeat(self, data: st.DataObject, worker: str) -> None:
        """Sends a heartbeat of a worker that lost its job to another worker. Random heartbeats rarely hit
        this case."""
        running = {job.id: job.fence for job in self.jobs() if job.state is State.RUNNING}
        late = [claimed for claimed in self.claims if running.get(claimed.id, claimed.fence) != claimed.fence]
        if late:
            self.send_heartbeat(worker, [data.draw(st.sampled_from(late).flatmap(_held_job))], 0, 30.0)

    def send_heartbeat(self, worker: str, held: list[HeldJob], unreceived: int, lease: float) -> None:
        send_heartbeat = Heartbeat(
            worker=worker,
            received=max(0, self.numbers[worker] - unreceived),
            lease=lease,
            held=tuple(held),
            host="host",
            pid=1,
            queues=("a",),
            concurrency=2,
        )
        self.both(lambda store: store.extend(send_heartbeat))

    def some_claims(self) -> st.SearchStrategy[ClaimedJob]:
        """Returns a strategy that draws a current claim or any earlier claim."""
        running = {(job.id, job.claim) for job in self.jobs() if job.state is State.RUNNING}
        current = [claimed for claimed in self.claims if (claimed.id, claimed.claim) in running]
        anything = st.sampled_from(self.claims)
        return st.one_of(st.sampled_from(current), anything) if current else anything


def _settlement(
    claimed: ClaimedJob, outcome: Outcome, spent: UsageReport | None, charged: Outcome | None
) -> Settlement:
    return Settlement(claimed.id, claimed.fence, claimed.claim, outcome, spent, charged)


def _held_job(claimed: ClaimedJob) -> st.SearchStrategy[HeldJob]:
    return st.builds(
        HeldJob,
        job=st.just(claimed.id),
        fence=st.just(claimed.fence),
        claim=st.just(claimed.claim),
        renew=st.booleans(),
        progress=st.sampled_from((None, 0.5)),
        note=st.sampled_from((None, "half")),
        log=st.sampled_from(((), (LogEntry("one", 2.0), LogEntry("two")))),
    )


outcomes_or_none: st.SearchStrategy[Outcome | None] = st.one_of(st.none(), st.just(Success()), some.outcomes)


class SuccessorRules(InsertRules, ClaimRules):
    @precondition(lambda self: self.claims)
    @rule(data=st.data(), job=some.new_jobs, unique=some.uniques, end=outcomes_or_none)
    def insert_running_unique_key(
        self, data: st.DataObject, job: NewJob, unique: Unique, end: Outcome | None
    ) -> None:
        """Inserts a job with the unique key of a running job. If `end` is given, settles the running job."""
        running = [known for known in self.jobs() if known.state is State.RUNNING]
        keys = {(known.id, known.claim): known.unique_key for known in running}
        held = [claimed for claimed in self.claims if keys.get((claimed.id, claimed.claim))]
        if not held:
            return
        holder: ClaimedJob = data.draw(st.sampled_from(held))
        key = keys[holder.id, holder.claim]
        self.insert([JobGroup(holder.queue, (replace(job, unique=replace(unique, key=key)),))])
        if end is not None:
            ended = Settlement(holder.id, holder.fence, holder.claim, end)
            self.both(lambda store: store.settle([ended]))


BATCH_SETTINGS = (
    BatchPolicy(max_items=3, linger=5.0),
    BatchPolicy(max_items=2),
    BatchPolicy(max_items=4, linger=20.0, max_units={"tokens": 250.0}),
    BatchPolicy(max_items=3, linger=2.0, call={"model": {"tokens": 30.0}}),
    BatchPolicy(max_items=0),
)
"""The last cost is never granted; the one before it only to jobs that need that pool."""
batch_settings = st.sampled_from(BATCH_SETTINGS)
batch_needs = st.one_of(
    st.just(()), st.just(()), st.sampled_from((some.FEASIBLE_NEEDS[0], some.FEASIBLE_NEEDS[4]))
)
batch_outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.sampled_from((SmallerBatch("1"), SmallerBatch("2"), JobRelease())), some.outcomes
)


class BatchRules(InsertRules, ClaimRules):
    @initialize(queue=some.queues, jobs=st.lists(some.new_jobs, min_size=3, max_size=5))
    def insert_initial_batch(self, queue: str, jobs: list[NewJob]) -> None:
        self.insert_batch(queue, jobs, BATCH_SETTINGS[0], ())

    @rule(
        queue=some.queues,
        jobs=st.lists(some.new_jobs, min_size=1, max_size=5),
        batching=batch_settings,
        needs=batch_needs,
    )
    def insert_batch(
        self, queue: str, jobs: list[NewJob], batching: BatchPolicy, needs: tuple[Need, ...]
    ) -> None:
        """Inserts jobs of one task with the same batch policy and the same needs, so that most of them share
        a batch."""
        alike = [replace(job, task="batch", batching=batching, needs=needs, unique=None) for job in jobs]
        self.insert([JobGroup(queue, tuple(alike))])

    @rule(queue=some.queues, job=some.new_jobs, batching=batch_settings)
    def insert_into_batch(self, queue: str, job: NewJob, batching: BatchPolicy) -> None:
        """Inserts a random job, with its own key and pools, as a batch job."""
        self.insert([JobGroup(queue, (replace(job, task="batch", batching=batching),))])

    @rule(queue=some.queues, jobs=st.integers(2, 4), outcome=batch_outcomes, key=some.usually(None, "k"))
    def run_batch_call(self, queue: str, jobs: int, outcome: Outcome, key: str | None) -> None:
        """Inserts, claims and settles a complete batch call. Random calls rarely hit this case."""
        names = [self.named(NewJob(id=some.FRESH_ID, task="batch", payload=b"{}")) for _ in range(jobs)]
        self.insert(
            [JobGroup(queue, tuple(replace(job, batching=BATCH_SETTINGS[1], key=key) for job in names))]
        )
        before = len(self.claims)
        self.claim_many("w")
        items = [
            Settlement(job.id, job.fence, job.claim, outcome) for job in self.claims[before:] if job.call
        ]
        self.both(lambda store: store.settle(items))

    @precondition(lambda self: any(claimed.call for claimed in self.claims))
    @rule(data=st.data(), outcome=batch_outcomes, spent=strategies.attempt_usages)
    def settle_batch_call(self, data: st.DataObject, outcome: Outcome, spent: UsageReport | None) -> None:
        """Selects a call of a batch and settles all its jobs with the same outcome. Only the first job of the
        call reports the usage `spent`."""
        held: list[ClaimedJob] = [claimed for claimed in self.claims if claimed.call]
        member = data.draw(st.sampled_from(held))
        items = [
            Settlement(job.id, job.fence, job.claim, outcome, spent if job.id == member.call else None)
            for job in {
                job.id: job for job in held if (job.call, job.claim) == (member.call, member.claim)
            }.values()
        ]
        self.both(lambda store: store.settle(items))


STEP_CHOICES = st.sampled_from((StepKey("ask", "1"), StepKey("speak", "1")))
STEP_VERBS = ("begin", "begin and park", "forget", "keep", "keep free")
STEP_COMMANDS = st.lists(st.tuples(st.sampled_from(STEP_VERBS), st.integers(1, 2)), min_size=1, max_size=3)
"""A step verb, and the number of the holder's call."""


class CheckpointRules(StorePair):
    @precondition(lambda self: self.claims)
    @rule(data=st.data(), step=STEP_CHOICES, commands=STEP_COMMANDS)
    def run_step_verbs(self, data: st.DataObject, step: StepKey, commands: list[tuple[str, int]]) -> None:
        """Runs `commands` on one claim. Each command is an operation on a step and a call number. One rule
        covers all operations, so that Hypothesis also chooses the remaining rules often."""
        held: ClaimedJob = data.draw(st.sampled_from(self.claims))
        for verb, number in commands:
            self.run_step_verb(held, step, verb, number)
        self.both(lambda store: store.kept_step(held.id, step))

    def run_step_verb(self, held: ClaimedJob, step: StepKey, verb: str, number: int) -> None:
        self.both(lambda store: _run_step_verb(store, held, step, verb, number))
        self.both(lambda store: store.checkpoints(held.id))


async def _run_step_verb(store: Store, held: ClaimedJob, step: StepKey, verb: str, number: int) -> object:
    by = StepAttempt(held.fence, held.claim, number)
    if verb == "forget":
        await store.forget_step(held.id, by, step)
        return None
    if verb.startswith("begin"):
        return await store.begin_step(held.id, by, step, "retry" if verb == "begin" else "park")
    result = b'"%d \xe6\x85\xa2"' % number
    return await store.keep_step(held.id, by, step, result, paid=verb == "keep")
