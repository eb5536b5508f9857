"""settle: what became of the jobs in a worker's hands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.contract.wakeups import agenda_topic, queue_topic
from tidemill.core.claims import ClaimRequest, Claims, Settled, Settlement
from tidemill.core.courses import Kind
from tidemill.core.outcomes import Answer, Cancelled, Done, Fail, Outcome, Release, Retrying, Snooze
from tidemill.engine import plans
from tidemill.engine import settle as engine
from tidemill.stores.postgres.claim import claim, claim_slowly, claims_of, may_be_plain, values_of
from tidemill.stores.postgres.columns import given, shared, words
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.rows import text_of
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step

SQL = load("plain")

_FINAL = (Done, Fail, Cancelled)


async def settle(home: Home, settlements: Sequence[Settlement], request: ClaimRequest | None) -> Settled:
    """What is plain is settled first: the others need a step of their own, and nobody waits for it."""
    if not settlements:
        return Settled([], None if request is None else await claim(home, request))
    began = home.connection.clock.own()
    plain = _plain(settlements)
    if not plain:
        return await _settle_slowly(home, settlements, request, began)
    with_claim = request is not None and len(plain) == len(settlements) and may_be_plain(request)
    left, claims = await _send(home, [settlements[at] for at in plain], request if with_claim else None)
    done = {at for number, at in enumerate(plain, 1) if number not in left}
    answers: list[Answer] = [Answer.OK] * len(settlements)
    rest = [at for at in range(len(settlements)) if at not in done]
    asked = None if claims is not None else request
    if not rest:
        return Settled(answers, claims if asked is None else await claim_slowly(home, asked, began))
    settled = await _settle_slowly(home, [settlements[at] for at in rest], asked, began)
    for at, answer in zip(rest, settled.answers, strict=True):
        answers[at] = answer
    return Settled(answers, claims or settled.claims, settled.news)


async def _send(
    home: Home, settlements: Sequence[Settlement], request: ClaimRequest | None
) -> tuple[set[int], Claims | None]:
    """Which of them (from 1) are left for a step, and the next jobs, if they were there for the hot path."""
    asked = home.connection.clock.asked()
    values = (*asked, *_columns(settlements))
    claims: Claims | None = None
    if request is None:
        rows = await home.connection.fetch(SQL.settle, *values)
        home.connection.clock.heard(rows[0]["wall"], rows[0]["boot"], rows[0]["epoch"])
    else:
        claim_id = home.peek_claim_id()
        wanted = values_of(request, claim_id)
        rows = await home.connection.fetch(SQL.settle_and_claim, *values, *wanted)
        claims = claims_of(home, rows, claim_id)
    left = set(map(int, rows[0]["left_over"]))
    ended = [item.job for number, item in enumerate(settlements, 1) if _ends(item) and number not in left]
    topics = [queue_topic(queue) for queue in rows[0]["rung"] or ()]
    if rows[0]["stirred"]:
        topics.append(agenda_topic(Kind.FLOW))
    home.connection.announce(topics, ended)
    return left, claims


def _ends(item: Settlement) -> bool:
    return isinstance(item.outcome, _FINAL)


async def settle_in(home: Home, step: Step, settlements: Sequence[Settlement]) -> list[Answer]:
    """In a transaction that has something else to write, too."""
    plan = plans.settle(settlements, None)
    settled = await home.run_in(step, plan, lambda records: engine.settle(records, settlements, None))
    return settled.answers


async def _settle_slowly(
    home: Home, settlements: Sequence[Settlement], request: ClaimRequest | None, began: float
) -> Settled:
    plan = plans.settle(settlements, request)
    settled, decided = await home.run_timed(
        plan, lambda records: engine.settle(records, settlements, request)
    )
    if settled.claims is not None:
        settled.claims.after(decided - began)
    return settled


def _plain(settlements: Sequence[Settlement]) -> list[int]:
    """Which of them may be, by the ids of their jobs: so do steps lock them, too. A job that is settled twice
    here is settled in order."""
    if len({item.job for item in settlements}) < len(settlements):
        return []
    plain = [at for at, item in enumerate(settlements) if _may_be_plain(item)]
    return sorted(plain, key=lambda at: settlements[at].job)


def _may_be_plain(item: Settlement) -> bool:
    if item.spent is not None or item.charged is not None:
        return False
    if isinstance(item.outcome, Release):
        return not item.outcome.unknown
    return isinstance(item.outcome, Done | Fail | Retrying | Cancelled | Snooze)


def _columns(settlements: Sequence[Settlement]) -> tuple[list[Any], ...]:
    kinds, result, error, reason, delay, priority = map(
        list, zip(*[_said(item.outcome) for item in settlements], strict=True)
    )
    return (
        [item.job for item in settlements],
        words(shared([item.fence for item in settlements])),
        words(shared([item.claim for item in settlements])),
        shared(kinds),
        *map(given, (result, error, reason)),
        words(given(delay)),
        words(given(priority)),
    )


def _said(outcome: Outcome) -> tuple[Any, ...]:
    """Kind, result, error, reason, delay, priority."""
    match outcome:
        case Done(result):
            return ("done", None if result is None else result.decode(), None, None, None, None)
        case Fail(error, reason):
            return ("fail", None, text_of(error), reason, None, None)
        case Retrying(delay, error, priority):
            return ("retry", None, text_of(error), None, delay, priority)
        case Snooze(delay, reason):
            return ("snooze", None, None, reason, delay, None)
        case Cancelled(reason):
            return ("cancelled", None, None, reason, None, None)
        case _:
            return ("release", None, None, None, None, None)
