"""Implements `settle`: records the outcomes of attempts, and ends the reservations of their claims. A write
with an old fence is refused."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import apsw
import msgspec

from tidemill.core import ledger as core_ledger
from tidemill.core import transitions
from tidemill.core.claims import Settlement
from tidemill.core.documents import DocumentKind
from tidemill.core.jobs import Job
from tidemill.core.ledger import HeldReservation
from tidemill.core.outcomes import (
    Crash,
    FinalFailure,
    Outcome,
    RetryLater,
    Success,
    UnitWait,
    WriteAnswer,
    needs_too_much,
)
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite import pools
from tidemill.stores.sqlite.ledger import RESERVATIONS, ClaimKey, reserved_of
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction


def settle_units(
    transaction: SqliteTransaction,
    settlements: Sequence[Settlement],
    answers: Sequence[WriteAnswer],
    chance: Callable[[], float],
) -> list[WriteAnswer]:
    """Counts the units that each claim used and ends its reservations, even if the settlement was refused
    (P13, P16). Returns `answers`, with CHARGED for each job that loses an attempt because the provider
    refused its call (P17)."""
    charged: dict[ClaimKey, int] = {}
    held = units_of_jobs(transaction, (item.job for item in settlements))
    for at, (item, answer) in enumerate(zip(settlements, answers, strict=True)):
        claim = (item.job, item.fence, item.claim)
        ended = held.pop(claim, [])
        if not ended and (item.spent is None or not _is_first_settlement(transaction, claim, answer)):
            continue
        ledger = transaction.ledger
        if core_ledger.settle_reservations(ledger, ended, item.spent, item.job, ledger.now, chance):
            charged[claim] = at
        transaction.execute(RESERVATIONS.end, claim)
    return _charge_refusals(transaction, settlements, answers, charged) if charged else list(answers)


def _is_first_settlement(transaction: SqliteTransaction, claim: ClaimKey, answer: WriteAnswer) -> bool:
    """True if the reported usage has to be counted. If the store has taken the job back, only the claim's
    first report counts (P14)."""
    return answer is WriteAnswer.OK or transaction.execute(RESERVATIONS.confirm, claim).get is not None


def _charge_refusals(
    transaction: SqliteTransaction,
    settlements: Sequence[Settlement],
    answers: Sequence[WriteAnswer],
    charged: dict[ClaimKey, int],
) -> list[WriteAnswer]:
    """Returns `answers`, with CHARGED for each job that loses an attempt because the provider refused its
    call (P17). `charged`: the claim of each refused call, with the position of the call's first job in
    `settlements`."""
    results = list(answers)
    jobs = transaction.by_id(item.job for item in settlements)
    for at, (item, answer) in enumerate(zip(settlements, answers, strict=True)):
        if answer is WriteAnswer.OK and item.charged is not None:
            calls = [(name, item.fence, item.claim) for name in (item.job, jobs[item.job].call)]
            if any(charged.get(claim, at + 1) <= at for claim in calls):
                results[at] = WriteAnswer.CHARGED
    return results


def recount_units(transaction: SqliteTransaction, jobs: Iterable[Job]) -> None:
    """Ends the reservations of running jobs that the store takes back from their workers (P14). The units
    count as used, because the worker may have made the call."""
    claims = {(job.id, job.fence, job.claim) for job in jobs}
    held = units_of_jobs(transaction, (name for name, _, _ in claims))
    _recount_units(transaction, {claim: held[claim] for claim in held if claim in claims})


def end_abandoned_units(transaction: SqliteTransaction, dead: Sequence[str]) -> None:
    """Ends the reservations of jobs that were cancelled while they ran, when their lease has ended (P14). The
    units count as used. `dead`: workers whose leases count as ended now."""
    _recount_units(
        transaction, _by_claim(transaction.execute(RESERVATIONS.abandoned, (transaction.boot, text_of(dead))))
    )


def abandon_units(transaction: SqliteTransaction, job: Job) -> None:
    """Keeps the reservations of a running job that is being cancelled, because its worker may still make the
    call. The reservations end with the settlement or the lease (P14)."""
    transaction.execute(RESERVATIONS.abandon, (job.lease, job.id, job.fence, job.claim))


def units_of_jobs(
    transaction: SqliteTransaction, jobs: Iterable[str]
) -> dict[ClaimKey, list[HeldReservation]]:
    if not transaction.execute(RESERVATIONS.has_rows).get:
        return {}
    ids = tuple(dict.fromkeys(jobs))
    return _by_claim(transaction.execute(RESERVATIONS.of_jobs, (apsw.carray(ids),))) if ids else {}


def _by_claim(
    rows: Iterable[tuple[str, int, int, str, str, str, int, int]],
) -> dict[ClaimKey, list[HeldReservation]]:
    found: dict[ClaimKey, list[HeldReservation]] = {}
    for job, fence, claim, pool, key, reservation, probe, deferred in rows:
        held = reserved_of(pool, key, reservation, probe, deferred)
        found.setdefault((job, fence, claim), []).append(held)
    return found


def _recount_units(transaction: SqliteTransaction, held: dict[ClaimKey, list[HeldReservation]]) -> None:
    for claim, ended in held.items():
        core_ledger.recount_units(transaction.ledger, ended, claim[0], transaction.ledger.now)
        transaction.execute(RESERVATIONS.end, claim)
        transaction.execute(RESERVATIONS.add_unconfirmed, (*claim, transaction.now))


SQL = load_statements("settle")


class JobClaimState(msgspec.Struct, array_like=True, frozen=True):
    """The columns of a job that `settle` reads."""

    id: str
    seq: int
    queue: str
    lane: str
    state: str
    fence: int
    claim: int
    flow: str | None


_JOB_CLAIM_STATES = msgspec.json.Decoder(list[JobClaimState])


def settle(
    transaction: SqliteTransaction, settlements: Sequence[Settlement], chance: Callable[[], float]
) -> list[WriteAnswer]:
    if not settlements:
        return []
    ids = apsw.carray(tuple(item.job for item in settlements))
    packed, has_reserved = transaction.execute(SQL.current_claims, (ids,)).fetchone()
    jobs = {s.id: s for s in _JOB_CLAIM_STATES.decode(packed)}
    answers = _answers(transaction, settlements, jobs)
    if has_reserved or any(item.spent is not None for item in settlements):
        answers = settle_units(transaction, settlements, answers, chance)
    successes: list[tuple[JobClaimState, bytes | None]] = []
    for item, answer in zip(settlements, answers, strict=True):
        outcome = item.charged if answer is WriteAnswer.CHARGED else item.outcome
        if answer not in (WriteAnswer.OK, WriteAnswer.CHARGED) or outcome is None:
            continue
        if isinstance(outcome, Success):
            successes.append((jobs[item.job], outcome.result))
        else:
            _settle_by_transition(transaction, item.job, outcome)
    _succeed(transaction, successes)
    return answers


def _answers(
    transaction: SqliteTransaction, settlements: Sequence[Settlement], jobs: dict[str, JobClaimState]
) -> list[WriteAnswer]:
    answers: list[WriteAnswer] = []
    settled: set[str] = set()
    for item in settlements:
        answer = _answer(transaction, item, jobs.get(item.job), settled)
        if answer is WriteAnswer.OK:
            settled.add(item.job)
        answers.append(answer)
    return answers


def _answer(
    transaction: SqliteTransaction, item: Settlement, job: JobClaimState | None, settled: set[str]
) -> WriteAnswer:
    if job is None:
        return (
            WriteAnswer.AGAIN
            if transaction.find_known_id(item.job) == (item.fence, item.claim)
            else WriteAnswer.GONE
        )
    if job.claim != item.claim or job.fence != item.fence:
        return WriteAnswer.STALE
    return WriteAnswer.OK if job.state == "running" and item.job not in settled else WriteAnswer.AGAIN


def _succeed(transaction: SqliteTransaction, successes: list[tuple[JobClaimState, bytes | None]]) -> None:
    if not successes:
        return
    plain = array("q", [job.seq for job, result in successes if result is None])
    if plain:
        transaction.execute(SQL.done, (transaction.now, apsw.carray(plain)))
    with_result = [(job.seq, result.decode()) for job, result in successes if result is not None]
    if with_result:
        transaction.execute(SQL.done_with_result, (transaction.now, text_of(with_result)))
    for (queue, lane), jobs in Counter((s.queue, s.lane) for s, _ in successes).items():
        transaction.count_change(queue, State.RUNNING, State.DONE, jobs)
        transaction.count_minute(queue, "done", jobs)
        transaction.free_slot(queue, lane)
    ended = [job.id for job, _ in successes]
    transaction.ended += ended
    for job, _ in successes:
        if job.flow is not None:
            transaction.count_flow_jobs(job.queue, State.DONE, 1)
            transaction.mark_document(DocumentKind.FLOW, job.flow, job.id)
    transaction.release_successors(ended)


def _settle_by_transition(transaction: SqliteTransaction, name: str, outcome: Outcome) -> None:
    """Applies an outcome other than success to a job, by the rules in `core.transitions`. `name` is the job
    id."""
    before = transaction.by_id([name])[name]
    if isinstance(outcome, UnitWait):
        problem = pools.problem_with_waiting(transaction, before, outcome.needs)
        outcome = outcome if problem is None else needs_too_much(problem)
    after = transitions.settle_job(before, outcome, transaction.settings(before.queue), transaction.now)
    if isinstance(outcome, RetryLater):
        transaction.count_minute(before.queue, "retried", 1)
        if transaction.successor_of(name) is not None:
            after = transitions.supersede_job(after, transaction.now)
    if isinstance(outcome, RetryLater | FinalFailure | Crash):
        transaction.record_attempt(before, str(outcome.__struct_config__.tag), outcome.error)
    transaction.save(before, after)
    if after.state in FINAL:
        transaction.release_successors([name])
