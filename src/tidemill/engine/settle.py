"""The store method `settle`: records the outcomes of claimed jobs."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.core import transitions
from tidemill.core.claims import ClaimRequest, Settlement, SettleResult, check_fence
from tidemill.core.jobs import Job
from tidemill.core.outcomes import (
    Crash,
    FinalFailure,
    Outcome,
    RetryLater,
    UnitWait,
    WriteAnswer,
    needs_too_much,
)
from tidemill.engine import pools
from tidemill.engine.claim import claim
from tidemill.engine.ledger import ClaimKey
from tidemill.engine.records import Records, move_job, record_attempt


def settle(records: Records, settlements: Sequence[Settlement], request: ClaimRequest | None) -> SettleResult:
    """Applies settlements in order and returns one answer each (J40 to J43). Then claims jobs, if `request`
    is given."""
    records.pool_ledger.take_pool_changes()
    charged: set[ClaimKey] = set()
    answers = [_settle_one(records, settlement, charged) for settlement in settlements]
    pool_changes = records.pool_ledger.take_pool_changes()
    return SettleResult(answers, None if request is None else claim(records, request), pool_changes)


def _settle_one(records: Records, settlement: Settlement, charged: set[ClaimKey]) -> WriteAnswer:
    """Applies one settlement and returns its answer. `charged` collects the claims that lose an attempt
    because of a provider's refusal (P17)."""
    job = records.jobs.get(settlement.job)
    answer = check_fence(job, settlement.fence, settlement.claim)
    if job is None:
        answer = _answer_from_memory(records, settlement)
    outcome = settlement.outcome
    if _book_units(records, settlement, answer):
        charged.add((settlement.job, settlement.fence, settlement.claim))
    if answer is WriteAnswer.OK and settlement.charged is not None and _pays(job, charged):
        answer, outcome = WriteAnswer.CHARGED, settlement.charged
    if job is not None and answer in (WriteAnswer.OK, WriteAnswer.CHARGED):
        _apply_outcome(records, job, outcome)
    return answer


def _pays(job: Job | None, charged: set[ClaimKey]) -> bool:
    """True if a provider's refusal costs the job an attempt: `charged` contains its claim, or the claim of
    the first job of its batch call."""
    if job is None or not charged:
        return False
    return any((name, job.fence, job.claim) in charged for name in (job.id, job.call))


def _answer_from_memory(records: Records, settlement: Settlement) -> WriteAnswer:
    """Returns the answer to a settlement of a deleted job: AGAIN if the settlement has the last claim of the
    job, else GONE."""
    known = records.find_known_id(settlement.job)
    if known is None or known.claim != settlement.claim or known.fence != settlement.fence:
        return WriteAnswer.GONE
    return WriteAnswer.AGAIN  # probably sent twice


def _book_units(records: Records, settlement: Settlement, answer: WriteAnswer) -> bool:
    """Applies the usage and observations of a settlement, once per claim, even if the settlement is refused
    (P13, P16). Returns True if a provider's refusal costs the job an attempt (P17)."""
    claim = (settlement.job, settlement.fence, settlement.claim)
    ended = records.pool_ledger.reserved.get(claim, [])
    if not ended and (settlement.spent is None or not _is_new(records, claim, answer)):
        return False
    is_charged = pools.settle_claim(records, ended, settlement.spent, settlement.job)
    records.pool_ledger.end_claim(claim)
    return is_charged


def _is_new(records: Records, claim: ClaimKey, answer: WriteAnswer) -> bool:
    """True if the usage report of this settlement still has to be applied (P14). `answer` is OK if the claim
    is current."""
    return answer is WriteAnswer.OK or records.pool_ledger.unconfirmed_units.pop(claim, None) is not None


def _apply_outcome(records: Records, job: Job, outcome: Outcome) -> None:
    now, queue = records.clock.wall(), records.queues[job.queue]
    if isinstance(outcome, UnitWait):
        problem = pools.problem_with_deferred(records, job, outcome.needs)
        outcome = outcome if problem is None else needs_too_much(problem)
    after = transitions.settle_job(job, outcome, queue.settings, now)
    if isinstance(outcome, RetryLater | FinalFailure | Crash):
        record_attempt(records, job, after, _OUTCOME_NAMES[type(outcome)], now)
    if isinstance(outcome, RetryLater):
        queue.count("retried", now)
        if records.successor_of(job.id) is not None:
            after = transitions.supersede_job(after, now)
    move_job(records, after, now)


_OUTCOME_NAMES: dict[type[Outcome], str] = {RetryLater: "retry", FinalFailure: "fail", Crash: "crashed"}
