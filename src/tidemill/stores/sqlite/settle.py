"""settle: outcomes, each fenced by its claim; successes in one statement."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence

import apsw
import msgspec

from tidemill.core import transitions
from tidemill.core.claims import Settlement
from tidemill.core.courses import Kind
from tidemill.core.outcomes import Answer, Await, Crashed, Done, Fail, Outcome, Retrying, never_fits
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite import booking, pools
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("settle")


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """As much of a job as its fence check and the bookkeeping need."""

    id: str
    seq: int
    queue: str
    lane: str
    state: str
    fence: int
    claim: int
    flow: str | None


_STANDINGS = msgspec.json.Decoder(list[Standing])


def settle(
    transaction: Transaction, settlements: Sequence[Settlement], chance: Callable[[], float]
) -> list[Answer]:
    if not settlements:
        return []
    ids = apsw.carray(tuple(item.job for item in settlements))
    packed, has_reserved = transaction.execute(SQL.standing, (ids,)).fetchone()
    standings = {s.id: s for s in _STANDINGS.decode(packed)}
    answers = _answers(transaction, settlements, standings)
    if has_reserved or any(item.spent is not None for item in settlements):
        answers = booking.settle(transaction, settlements, answers, chance)
    successes: list[tuple[Standing, bytes | None]] = []
    for item, answer in zip(settlements, answers, strict=True):
        outcome = item.charged if answer is Answer.CHARGED else item.outcome
        if answer not in (Answer.OK, Answer.CHARGED) or outcome is None:
            continue
        if isinstance(outcome, Done):
            successes.append((standings[item.job], outcome.result))
        else:
            _apply(transaction, item.job, outcome)
    _succeed(transaction, successes)
    return answers


def _answers(
    transaction: Transaction, settlements: Sequence[Settlement], standings: dict[str, Standing]
) -> list[Answer]:
    answers: list[Answer] = []
    settled: set[str] = set()
    for item in settlements:
        answer = _answer(transaction, item, standings.get(item.job), settled)
        if answer is Answer.OK:
            settled.add(item.job)
        answers.append(answer)
    return answers


def _answer(
    transaction: Transaction, item: Settlement, standing: Standing | None, settled: set[str]
) -> Answer:
    if standing is None:
        return Answer.AGAIN if transaction.recall(item.job) == (item.fence, item.claim) else Answer.GONE
    if standing.claim != item.claim or standing.fence != item.fence:
        return Answer.STALE
    return Answer.OK if standing.state == "running" and item.job not in settled else Answer.AGAIN


def _succeed(transaction: Transaction, successes: list[tuple[Standing, bytes | None]]) -> None:
    if not successes:
        return
    plain = array("q", [standing.seq for standing, result in successes if result is None])
    if plain:
        transaction.execute(SQL.done, (transaction.now, apsw.carray(plain)))
    given = [(standing.seq, result.decode()) for standing, result in successes if result is not None]
    if given:
        transaction.execute(SQL.done_with_result, (transaction.now, text_of(given)))
    for (queue, lane), jobs in Counter((s.queue, s.lane) for s, _ in successes).items():
        transaction.counted(queue, State.RUNNING, State.DONE, jobs)
        transaction.remark(queue, "done", jobs)
        transaction.freed(queue, lane)
    ended = [standing.id for standing, _ in successes]
    transaction.ended += ended
    for standing, _ in successes:
        if standing.flow is not None:
            transaction.counted_parts(standing.queue, State.DONE, 1)
            transaction.stir(Kind.FLOW, standing.flow, standing.id)
    transaction.release_successors(ended)


def _apply(transaction: Transaction, name: str, outcome: Outcome) -> None:
    """Any outcome but success, by the pure transitions."""
    before = transaction.by_id([name])[name]
    if isinstance(outcome, Await):
        problem = pools.problem_with_waiting(transaction, before, outcome.needs)
        outcome = outcome if problem is None else never_fits(problem)
    after = transitions.settled(before, outcome, transaction.settings(before.queue), transaction.now)
    if isinstance(outcome, Retrying):
        transaction.remark(before.queue, "retried", 1)
        if transaction.successor_of(name) is not None:
            after = transitions.superseded(after, transaction.now)
    if isinstance(outcome, Retrying | Fail | Crashed):
        transaction.record_attempt(before, str(outcome.__struct_config__.tag), outcome.error)
    transaction.save(before, after)
    if after.state in FINAL:
        transaction.release_successors([name])
