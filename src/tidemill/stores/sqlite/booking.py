"""What becomes of the units a claim held, when the claim ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import apsw

from tidemill.core import ledger as books
from tidemill.core.claims import Settlement
from tidemill.core.job import Job
from tidemill.core.ledger import Reserved
from tidemill.core.outcomes import Answer
from tidemill.stores.sqlite.ledger import RESERVATIONS as SQL
from tidemill.stores.sqlite.ledger import Claim, reserved_of
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.transaction import Transaction


def settle(
    transaction: Transaction,
    settlements: Sequence[Settlement],
    answers: Sequence[Answer],
    chance: Callable[[], float],
) -> list[Answer]:
    """P13, P16: whatever the settlement was told, but once. P17: answers those that pay for it."""
    charged: dict[Claim, int] = {}
    held = of_jobs(transaction, (item.job for item in settlements))
    for at, (item, answer) in enumerate(zip(settlements, answers, strict=True)):
        claim = (item.job, item.fence, item.claim)
        ended = held.pop(claim, [])
        if not ended and (item.spent is None or not _is_new(transaction, claim, answer)):
            continue
        ledger = transaction.ledger
        if books.conclude(ledger, ended, item.spent, item.job, ledger.now, chance):
            charged[claim] = at
        transaction.execute(SQL.end, claim)
    return _pay(transaction, settlements, answers, charged) if charged else list(answers)


def _is_new(transaction: Transaction, claim: Claim, answer: Answer) -> bool:
    """The units of a claim that is not current ended with its settlement, unless they were counted anew."""
    return answer is Answer.OK or transaction.execute(SQL.hear, claim).get is not None


def _pay(
    transaction: Transaction,
    settlements: Sequence[Settlement],
    answers: Sequence[Answer],
    charged: dict[Claim, int],
) -> list[Answer]:
    """P17. `charged` is where the claims stand whose refusal is to be paid for. The first job of a call
    speaks for those behind it."""
    told = list(answers)
    jobs = transaction.by_id(item.job for item in settlements)
    for at, (item, answer) in enumerate(zip(settlements, answers, strict=True)):
        if answer is Answer.OK and item.charged is not None:
            calls = [(name, item.fence, item.claim) for name in (item.job, jobs[item.job].call)]
            if any(charged.get(claim, at + 1) <= at for claim in calls):
                told[at] = Answer.CHARGED
    return told


def count_anew(transaction: Transaction, jobs: Iterable[Job]) -> None:
    """P14: of running jobs that were taken from their holders."""
    claims = {(job.id, job.fence, job.claim) for job in jobs}
    held = of_jobs(transaction, (name for name, _, _ in claims))
    _count_anew(transaction, {claim: held[claim] for claim in held if claim in claims})


def end_left(transaction: Transaction, dead: Sequence[str]) -> None:
    """P14: of jobs that were cancelled while they ran, and whose holder never spoke again."""
    _count_anew(transaction, _by_claim(transaction.execute(SQL.over, (transaction.boot, text_of(dead)))))


def leave(transaction: Transaction, job: Job) -> None:
    """P14: a running job is taken away by hand; its units are its holder's to settle."""
    transaction.execute(SQL.leave, (job.lease, job.id, job.fence, job.claim))


def of_jobs(transaction: Transaction, jobs: Iterable[str]) -> dict[Claim, list[Reserved]]:
    if not transaction.execute(SQL.anything).get:
        return {}
    ids = tuple(dict.fromkeys(jobs))
    return _by_claim(transaction.execute(SQL.of_jobs, (apsw.carray(ids),))) if ids else {}


def _by_claim(rows: Iterable[tuple[str, int, int, str, str, str, int, int]]) -> dict[Claim, list[Reserved]]:
    found: dict[Claim, list[Reserved]] = {}
    for job, fence, claim, pool, key, reservation, probe, extra in rows:
        held = reserved_of(pool, key, reservation, probe, extra)
        found.setdefault((job, fence, claim), []).append(held)
    return found


def _count_anew(transaction: Transaction, held: dict[Claim, list[Reserved]]) -> None:
    for claim, ended in held.items():
        books.count_anew(transaction.ledger, ended, claim[0], transaction.ledger.now)
        transaction.execute(SQL.end, claim)
        transaction.execute(SQL.unheard, (*claim, transaction.now))
