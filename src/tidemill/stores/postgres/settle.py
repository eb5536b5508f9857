"""settle: what became of the jobs in a worker's hands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.contract.wakeups import queue_topic
from tidemill.core.claims import ClaimRequest, Claims, Settled, Settlement
from tidemill.core.job import Error
from tidemill.core.outcomes import Answer, Cancelled, Done, Fail, Outcome, Release, Retrying, Snooze
from tidemill.engine import plans
from tidemill.engine import settle as engine
from tidemill.stores.postgres.claim import claim, claims_of, may_be_plain, values_of
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.rows import text_of
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step

SQL = load("plain")


async def settle(home: Home, settlements: Sequence[Settlement], request: ClaimRequest | None) -> Settled:
    """What is plain is settled first: the others need a step of their own, and nobody waits for it."""
    if not settlements:
        return Settled([], None if request is None else await claim(home, request))
    plain = _plain(settlements)
    if not plain:
        return await _settle_slowly(home, settlements, request)
    claims: Claims | None = None
    values = (*home.connection.clock.asked(), *_columns([settlements[at] for at in plain]))
    with_claim = request is not None and len(plain) == len(settlements) and may_be_plain(request)
    if request is not None and with_claim:
        claim_id = home.peek_claim_id()
        sql, wanted = SQL.settle_and_claim, values_of(request, claim_id)
        rows = await home.connection.fetch(sql, *values, *wanted)
        claims = claims_of(home, rows, claim_id)
    else:
        rows = await home.connection.fetch(SQL.settle, *values)
    left = {plain[number - 1] for number in rows[0]["left_over"]}
    done = [at for at in plain if at not in left]
    _announce(home, rows[0]["rung"], [settlements[at] for at in done])
    answers: list[Answer] = [Answer.OK] * len(settlements)
    if len(done) == len(settlements) and (request is None or claims is not None):
        return Settled(answers, claims)
    rest = [at for at in range(len(settlements)) if at not in set(done)]
    settled = await _settle_slowly(home, [settlements[at] for at in rest], request)
    for at, answer in zip(rest, settled.answers, strict=True):
        answers[at] = answer
    return Settled(answers, settled.claims, settled.news)


async def settle_in(home: Home, step: Step, settlements: Sequence[Settlement]) -> list[Answer]:
    """In a transaction that has something else to write, too."""
    plan = plans.settle(settlements, None)
    settled = await home.run_in(step, plan, lambda records: engine.settle(records, settlements, None))
    return settled.answers


async def _settle_slowly(
    home: Home, settlements: Sequence[Settlement], request: ClaimRequest | None
) -> Settled:
    plan = plans.settle(settlements, request)
    return await home.run(plan, lambda records: engine.settle(records, settlements, request))


def _plain(settlements: Sequence[Settlement]) -> list[int]:
    """Which of them may be. A job that is settled twice here is settled in order."""
    if len({item.job for item in settlements}) < len(settlements):
        return []
    return [at for at, item in enumerate(settlements) if _may_be_plain(item)]


def _may_be_plain(item: Settlement) -> bool:
    if item.spent is not None or item.charged is not None:
        return False
    if isinstance(item.outcome, Release):
        return not item.outcome.unknown
    return isinstance(item.outcome, Done | Fail | Retrying | Cancelled | Snooze)


def _columns(settlements: Sequence[Settlement]) -> tuple[list[Any], ...]:
    rows = [(item.job, item.fence, item.claim, *_words(item.outcome)) for item in settlements]
    return tuple(map(list, zip(*rows, strict=True)))


def _words(outcome: Outcome) -> tuple[Any, ...]:
    """Kind, result, error, reason, delay, priority."""
    match outcome:
        case Done(result):
            return ("done", None if result is None else result.decode(), None, None, None, None)
        case Fail(error, reason):
            return ("fail", None, _error(error), reason, None, None)
        case Retrying(delay, error, priority):
            return ("retry", None, _error(error), None, delay, priority)
        case Snooze(delay, reason):
            return ("snooze", None, None, reason, delay, None)
        case Cancelled(reason):
            return ("cancelled", None, None, reason, None, None)
        case _:
            return ("release", None, None, None, None, None)


def _error(error: Error) -> str:
    return text_of(error)


def _announce(home: Home, rung: list[str] | None, settlements: Sequence[Settlement]) -> None:
    ended = [item.job for item in settlements if isinstance(item.outcome, Done | Fail | Cancelled)]
    home.connection.announce(map(queue_topic, rung or ()), ended)
