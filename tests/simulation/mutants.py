"""Mutants of the engine, each with one safety check removed. The simulator has to detect each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from tests.simulation.fleet import LEASE
from tidemill.contract.jobs import ReclaimResult
from tidemill.core import accounts, breaker, transitions
from tidemill.core.claims import ClaimedJob, Heartbeat
from tidemill.core.jobs import Job
from tidemill.core.outcomes import FinalFailure, Outcome, Success, WriteAnswer
from tidemill.core.queues import InsertResult, InsertVerdict, QueueSettings
from tidemill.core.states import State, Verb
from tidemill.engine import claim, insert, leases, settle
from tidemill.engine import records as engine_records
from tidemill.engine.claim import ClaimRun
from tidemill.engine.queue import Queue
from tidemill.engine.records import Records, move_job
from tidemill.testing.clocks import VirtualClock
from tidemill.worker.attempt import Attempt, CancelReason
from tidemill.worker.cancellation import OutcomeDecider
from tidemill.worker.dispatcher import Dispatcher, IdleWait
from tidemill.worker.executor import Executor
from tidemill.worker.invocation import HandlerInvoker
from tidemill.worker.outcomes import decide_refusal, describe_error

Patch = AbstractContextManager[Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutant. `caught_by` are the invariants that may fail first; `profile` is the profile that shows
    it."""

    name: str
    apply: Callable[[], Patch]
    caught_by: tuple[str, ...]
    profile: str = "everything"


def _settle_without_claim() -> Patch:
    def answer(job: Job | None, _fence: int, _claim: int) -> WriteAnswer:
        if job is None:
            return WriteAnswer.GONE
        return WriteAnswer.OK if job.state is State.RUNNING else WriteAnswer.AGAIN

    return patch.object(settle, "check_fence", answer)


def _settle_without_claim_id() -> Patch:
    def answer(job: Job | None, fence: int, _claim: int) -> WriteAnswer:
        if job is None:
            return WriteAnswer.GONE
        if job.fence != fence:
            return WriteAnswer.STALE
        return WriteAnswer.OK if job.state is State.RUNNING else WriteAnswer.AGAIN

    return patch.object(settle, "check_fence", answer)


def _extend_without_claim() -> Patch:
    return patch.object(leases, "is_current", lambda job, _fence, _claim: job.state is State.RUNNING)


def _settle_before_run() -> Patch:
    fill = Executor.fill

    def fill_and_settle(self: Executor) -> None:
        waiting = [attempt for attempt in self._slots.buffered if attempt.outcome is None]
        fill(self)
        for attempt in waiting:
            if attempt.outcome is None and attempt.task is not None:
                self._conclude(attempt, Success())

    return patch.object(Executor, "fill", fill_and_settle)


def _running(records: Records) -> list[Job]:
    return [records.jobs[id_] for id_ in records.running.every()]


def _reclaim_by_age() -> Patch:
    def by_age(records: Records, _dead: Sequence[str]) -> ReclaimResult:
        now = records.clock.wall()
        over = [job for job in _running(records) if now - (job.started or now) > LEASE]
        back = [leases._take_back(records, job, died=False) for job in over]
        return ReclaimResult(tuple(job.id for job in back if job.state is State.READY), ())

    return patch.object(leases, "reclaim", by_age)


def _leases_by_wall_clock() -> Patch:
    def by_wall(records: Records, _dead: Sequence[str]) -> ReclaimResult:
        clock = records.clock
        assert isinstance(clock, VirtualClock)
        over = [job for job in _running(records) if job.lease <= clock.boot() + clock._skew]
        back = [leases._take_back(records, job, died=False) for job in over]
        return ReclaimResult(tuple(job.id for job in back if job.state is State.READY), ())

    return patch.object(leases, "reclaim", by_wall)


def _leases_by_worker_clock() -> Patch:
    begin = ClaimRun.__init__

    def begin_by_their_clock(self: ClaimRun, records: Records, request: Any) -> None:
        begin(self, records, request)
        self.lease += (sum(request.worker.encode()) % 7 - 3) * 100

    return patch.object(ClaimRun, "__init__", begin_by_their_clock)


def _heartbeat_renews_everybody() -> Patch:
    renew = leases._record_worker

    def renew_all(records: Records, heartbeat: Heartbeat, lease: float) -> None:
        renew(records, heartbeat, lease)
        for job in _running(records):
            records.put(replace(job, lease=lease))

    return patch.object(leases, "_record_worker", renew_all)


def _lost_reply_is_a_crash() -> Patch:
    def returned(job: Job) -> Job:
        return replace(job, state=State.READY, claim=0, crashes=job.crashes + 1)

    return patch.object(transitions, "return_unrun_job", returned)


def _company_is_charged() -> Patch:
    def reclaimed(job: Job, settings: QueueSettings, now: float, *, died: bool = False) -> Job:
        error = describe_error(TimeoutError("lease"))
        after = transitions._count_crash(job, Verb.RECLAIM, settings, error, now)
        return replace(after, claim=0, crashes=job.crashes + 2)

    return patch.object(transitions, "reclaim_job", reclaimed)


def _suspects_in_company() -> Patch:
    async def run(self: HandlerInvoker, attempt: Attempt, definition: Any, context: Any) -> Any:
        return await self._run_async(attempt, definition, context)

    return patch.object(HandlerInvoker, "_run_isolated", run)


def _ids_are_forgotten() -> Patch:
    def known(records: Records, request: str) -> InsertResult | None:
        return InsertResult(InsertVerdict.ACCEPTED, request) if request in records.jobs else None

    return patch.object(insert, "_known_request", known)


def _claim_numbers_are_forgotten() -> Patch:
    return patch.object(claim, "_is_repeated", lambda _records, _request: False)


def _key_limit_is_ignored() -> Patch:
    return patch.object(Queue, "room_in", lambda _self, _lane: float("inf"))


def _queue_limit_is_ignored() -> Patch:
    return patch.object(Queue, "room", lambda _self: float("inf"))


def _pauses_are_ignored() -> Patch:
    return patch.object(Queue, "closed", lambda _self, _now: False)


def _expiry_is_ignored() -> Patch:
    return patch.object(transitions, "is_expired", lambda _job, _now: False)


def _length_limit_is_ignored() -> Patch:
    return patch.object(insert, "_problem_with_length", lambda *_args: None)


def _unique_is_not_checked() -> Patch:
    return patch.object(insert, "holder_of", lambda _records, _queue, _unique, _now: None)


def _unique_is_never_released() -> Patch:
    def ever(records: Records, queue: str, unique: Any, _now: float) -> Job | None:
        if unique is None:
            return None
        jobs = [job for job in records.jobs.values() if job.queue == queue and job.unique_key == unique.key]
        return max(jobs, key=lambda job: (job.after is None, job.seq), default=None)

    return patch.object(insert, "holder_of", ever)


def _successors_are_forgotten() -> Patch:
    return patch.object(engine_records, "announce_end", lambda _records, _job, _now: None)


def _reclaim_forgets_to_count() -> Patch:
    take_back = leases._take_back

    def take_back_only(records: Records, job: Job, *, died: bool) -> Job:
        after = take_back(records, job, died=died)
        records.queue(job.queue).running_in.change(job.lane, 1)
        return after

    return patch.object(leases, "_take_back", take_back_only)


def _retry_loses_its_place() -> Patch:
    apply = settle._apply_outcome

    def apply_and_move(records: Records, job: Job, outcome: Outcome) -> None:
        apply(records, job, outcome)
        after = records.jobs[job.id]
        if after.state in (State.READY, State.SCHEDULED):
            records.put(replace(after, seq=records.next_seq()))

    return patch.object(settle, "_apply_outcome", apply_and_move)


def _cancel_leaves_the_claim() -> Patch:
    cancelled = transitions.cancel_job

    def leave(job: Job, reason: str, now: float) -> Job:
        return replace(cancelled(job, reason, now), claim=job.claim)

    return patch.object(transitions, "cancel_job", leave)


def _reclaim_leaves_the_claim() -> Patch:
    reclaimed = transitions.reclaim_job

    def leave(job: Job, settings: QueueSettings, now: float, *, died: bool = False) -> Job:
        return replace(reclaimed(job, settings, now, died=died), claim=job.claim)

    return patch.object(transitions, "reclaim_job", leave)


def _drain_charges() -> Patch:
    cancelled = OutcomeDecider.cancelled

    def charge(self: OutcomeDecider, attempt: Attempt, error: Any) -> Outcome | None:
        if attempt.stop is CancelReason.DRAIN:
            return FinalFailure(describe_error(error))
        return cancelled(self, attempt, error)

    return patch.object(OutcomeDecider, "cancelled", charge)


def _drain_goes_on_claiming() -> Patch:
    return patch.object(Dispatcher, "stop_claiming", lambda _self: None)


def _promote_early() -> Patch:
    def promote(records: Records, queue: Queue, now: float) -> None:
        for key in queue.scheduled.slice(0, 1000):
            if key[0] <= now + 1:
                move_job(records, transitions.promote_job(records.jobs[key[-1]]), now)

    return patch.object(claim, "_promote_due", promote)


def _unknown_by_wall_clock() -> Patch:
    unknown = transitions._postpone_unknown_task

    def by_wall(job: Job, now: float) -> Job:
        waited = max(job.unknown_for, now - job.created)
        return unknown(replace(job, unknown_for=waited), now)

    return patch.object(transitions, "_postpone_unknown_task", by_wall)


def _nobody_polls() -> Patch:
    park = IdleWait.park
    return patch.object(IdleWait, "park", lambda self, _seconds, is_poll: park(self, 1e6, is_poll=is_poll))


def _enqueue_waits_for_ever() -> Patch:
    return _both(
        patch("tidemill.client.enqueuer.ENQUEUE_DEADLINE_SECONDS", 60.0),
        patch("tidemill.client.enqueuer.ATTEMPT_TIMEOUT_SECONDS", 60.0),
    )


def _reclaim_gives_units_back() -> Patch:
    return patch.object(accounts, "recount_account", accounts.release_units)


def _units_are_promised_and_not_entered() -> Patch:
    ask = accounts.request_units

    def promise(pool: Any, account: Any, wanted: Any, now: Any) -> Any:
        answer = ask(pool, account, wanted, now)
        if isinstance(answer, accounts.UnitGrant):
            return replace(answer, account=replace(answer.account, state=account.state))
        return answer

    return patch.object(accounts, "request_units", promise)


def _everybody_probes() -> Patch:
    return patch.object(breaker, "start_probe", lambda known, _job: known)


def _closures_are_ignored() -> Patch:
    return patch.object(breaker, "check_gate", lambda *_: breaker.OpenGate())


def _refusals_are_charged() -> Patch:
    def charged(meter: Any, error: BaseException, job: ClaimedJob) -> None:
        decide_refusal(meter, error, job)

    return patch("tidemill.worker.cancellation.decide_refusal", charged)


@contextmanager
def _both(first: Patch, second: Patch) -> Iterator[None]:
    with first, second:
        yield


MUTANTS = (
    Mutant("settle compares neither fence nor claim id", _settle_without_claim, ("I6",)),
    Mutant("settle does not compare the claim id", _settle_without_claim_id, ("I6",)),
    Mutant("extend does not compare the claim", _extend_without_claim, ("I6",)),
    Mutant("settled before it runs", _settle_before_run, ("I1", "I16"), "kills"),
    Mutant("reclaim by age", _reclaim_by_age, ("I7",)),
    Mutant("leases by the wall clock", _leases_by_wall_clock, ("I7",), "clocks"),
    Mutant("leases by the worker's clock", _leases_by_worker_clock, ("I7",)),
    Mutant("a heartbeat renews everybody's leases", _heartbeat_renews_everybody, ("I6", "I7"), "kills"),
    Mutant("a lost claim reply counts as a crash", _lost_reply_is_a_crash, ("I8",), "network"),
    Mutant("a crash in company is charged", _company_is_charged, ("I8",), "kills"),
    Mutant("suspects run in company", _suspects_in_company, ("I8",), "kills"),
    Mutant("ids are forgotten with their jobs", _ids_are_forgotten, ("I3",), "network"),
    Mutant("claim numbers are forgotten", _claim_numbers_are_forgotten, ("I5",), "network"),
    Mutant("the limit per key is ignored", _key_limit_is_ignored, ("I13",)),
    Mutant("the limit per queue is ignored", _queue_limit_is_ignored, ("I13",)),
    Mutant("pauses are ignored", _pauses_are_ignored, ("J34",), "operators"),
    Mutant("expiry is ignored", _expiry_is_ignored, ("J36",)),
    Mutant("the length limit is ignored", _length_limit_is_ignored, ("I22",)),
    Mutant("unique keys are not checked", _unique_is_not_checked, ("I11",)),
    Mutant("unique keys are never released", _unique_is_never_released, ("I11",)),
    Mutant("successors are forgotten", _successors_are_forgotten, ("I1",)),
    Mutant("a reclaim forgets to count down", _reclaim_forgets_to_count, ("I13",), "kills"),
    Mutant("a retry loses its place", _retry_loses_its_place, ("I4",)),
    Mutant("a cancel leaves the claim", _cancel_leaves_the_claim, ("I6",), "operators"),
    Mutant("a reclaim leaves the claim", _reclaim_leaves_the_claim, ("I6",), "pauses"),
    Mutant("a drain charges attempts", _drain_charges, ("I20",), "drains"),
    Mutant("a drain goes on claiming", _drain_goes_on_claiming, ("I20",), "drains"),
    Mutant("jobs are promoted before they are due", _promote_early, ("I10",)),
    Mutant("patience is measured on the wall", _unknown_by_wall_clock, ("I26",), "clocks"),
    Mutant("nobody polls", _nobody_polls, ("I1", "I23"), "quiet and deaf"),
    Mutant("a reclaim gives units back", _reclaim_gives_units_back, ("I14",), "kills"),
    Mutant("units are promised and not entered", _units_are_promised_and_not_entered, ("I14",)),
    Mutant("everybody probes", _everybody_probes, ("I15",), "network"),
    Mutant("closures are ignored", _closures_are_ignored, ("I15",), "kills"),
    Mutant("refusals are charged", _refusals_are_charged, ("I16",), "kills"),
    Mutant("an enqueue has no deadline", _enqueue_waits_for_ever, ("I22",), "network"),
)
