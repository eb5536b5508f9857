"""settle: what became of the jobs in a worker's hands."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.core import transitions
from tidemill.core.claims import ClaimRequest, Settled, Settlement, answer_to
from tidemill.core.job import Job
from tidemill.core.outcomes import Answer, Await, Crashed, Fail, Outcome, Retrying, never_fits
from tidemill.engine import pools
from tidemill.engine.claim import claim
from tidemill.engine.ledger import Claim
from tidemill.engine.moves import move, record_attempt
from tidemill.engine.records import Records


def settle(records: Records, settlements: Sequence[Settlement], request: ClaimRequest | None) -> Settled:
    """J40 to J43. Settlements are taken in order, each on top of the one before; then the claim."""
    records.books.take_news()
    charged: set[Claim] = set()
    answers = [_settle_one(records, settlement, charged) for settlement in settlements]
    news = records.books.take_news()
    return Settled(answers, None if request is None else claim(records, request), news)


def _settle_one(records: Records, settlement: Settlement, charged: set[Claim]) -> Answer:
    """`charged` are those before it whose refusal is to be paid for (P17)."""
    job = records.jobs.get(settlement.job)
    answer = answer_to(job, settlement.fence, settlement.claim)
    if job is None:
        answer = _answer_from_memory(records, settlement)
    outcome = settlement.outcome
    if _book(records, settlement, answer):
        charged.add((settlement.job, settlement.fence, settlement.claim))
    if answer is Answer.OK and settlement.charged is not None and _pays(job, charged):
        answer, outcome = Answer.CHARGED, settlement.charged
    if job is not None and answer in (Answer.OK, Answer.CHARGED):
        _apply(records, job, outcome)
    return answer


def _pays(job: Job | None, charged: set[Claim]) -> bool:
    """The first job of a call speaks for those behind it."""
    if job is None or not charged:
        return False
    return any((name, job.fence, job.claim) in charged for name in (job.id, job.call))


def _answer_from_memory(records: Records, settlement: Settlement) -> Answer:
    """A pruned job still knows the claim that ended it, so a late repetition is not alarmed."""
    known = records.recall(settlement.job)
    if known is None or known.claim != settlement.claim or known.fence != settlement.fence:
        return Answer.GONE
    return Answer.AGAIN


def _book(records: Records, settlement: Settlement, answer: Answer) -> bool:
    """P13, P16: whatever it was answered, but once. P17: whether it pays."""
    claim = (settlement.job, settlement.fence, settlement.claim)
    ended = records.books.reserved.get(claim, [])
    if not ended and (settlement.spent is None or not _is_new(records, claim, answer)):
        return False
    is_charged = pools.conclude(records, ended, settlement.spent, settlement.job)
    records.books.end(claim)
    return is_charged


def _is_new(records: Records, claim: Claim, answer: Answer) -> bool:
    """The units of a claim that is not current ended with its settlement, unless they were counted anew."""
    return answer is Answer.OK or records.books.unheard.pop(claim, None) is not None


def _apply(records: Records, job: Job, outcome: Outcome) -> None:
    now, queue = records.clock.wall(), records.queues[job.queue]
    if isinstance(outcome, Await):
        problem = pools.problem_with_waiting(records, job, outcome.needs)
        outcome = outcome if problem is None else never_fits(problem)
    after = transitions.settled(job, outcome, queue.settings, now)
    if isinstance(outcome, Retrying | Fail | Crashed):
        record_attempt(records, job, after, _WORD[type(outcome)], now)
    if isinstance(outcome, Retrying):
        queue.count("retried", now)
        if records.successor_of(job.id) is not None:
            after = transitions.superseded(after, now)
    move(records, after, now)


_WORD: dict[type[Outcome], str] = {Retrying: "retry", Fail: "fail", Crashed: "crashed"}
