"""Implements `settle`: records outcomes on the fast path, or in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.contract.coordination import queue_topic, worklist_topic
from tidemill.core.claims import ClaimRequest, ClaimResult, Settlement, SettleResult
from tidemill.core.documents import DocumentKind
from tidemill.core.outcomes import (
    Cancellation,
    FinalFailure,
    JobRelease,
    Outcome,
    RetryLater,
    Snooze,
    Success,
    WriteAnswer,
)
from tidemill.engine import read_sets
from tidemill.engine import settle as engine
from tidemill.stores.postgres.claim import (
    claim,
    claim_arguments,
    claim_by_engine,
    decode_claims,
    may_be_plain,
)
from tidemill.stores.postgres.engine_runner import PostgresEngineRunner
from tidemill.stores.postgres.rows import collapse_equal, json_text, omit_empty, text_array
from tidemill.stores.postgres.statements import load_statements
from tidemill.stores.postgres.transaction import PostgresTransaction

SQL = load_statements("fast_path")

_FINAL = (Success, FinalFailure, Cancellation)


async def settle(
    runner: PostgresEngineRunner, settlements: Sequence[Settlement], request: ClaimRequest | None
) -> SettleResult:
    """Settles jobs on the fast path first, and then the other jobs in an engine transaction. If `request` is
    given, also claims the next jobs."""
    if not settlements:
        return SettleResult([], None if request is None else await claim(runner, request))
    began = runner.connection.clock.process_time()
    plain = _plain(settlements)
    if not plain:
        return await _settle_by_engine(runner, settlements, request, began)
    with_claim = request is not None and len(plain) == len(settlements) and may_be_plain(request)
    left, claims = await _settle_on_fast_path(
        runner, [settlements[at] for at in plain], request if with_claim else None
    )
    done = {at for number, at in enumerate(plain, 1) if number not in left}
    answers: list[WriteAnswer] = [WriteAnswer.OK] * len(settlements)
    rest = [at for at in range(len(settlements)) if at not in done]
    open_request = None if claims is not None else request
    if not rest:
        return SettleResult(
            answers, claims if open_request is None else await claim_by_engine(runner, open_request, began)
        )
    settled = await _settle_by_engine(runner, [settlements[at] for at in rest], open_request, began)
    for at, answer in zip(rest, settled.answers, strict=True):
        answers[at] = answer
    return SettleResult(answers, claims or settled.claims, settled.pool_changes)


async def _settle_on_fast_path(
    runner: PostgresEngineRunner, settlements: Sequence[Settlement], request: ClaimRequest | None
) -> tuple[set[int], ClaimResult | None]:
    """Settles on the fast path, and claims jobs if `request` is given. Returns the numbers (from 1) of the
    settlements that need the engine, and the claimed jobs; None if the engine must claim."""
    clock_arguments = runner.connection.clock.arguments()
    values = (*clock_arguments, *_columns(settlements))
    claims: ClaimResult | None = None
    if request is None:
        rows = await runner.connection.fetch(SQL.settle, *values)
        runner.connection.clock.update(rows[0]["wall"], rows[0]["boot"], rows[0]["epoch"])
    else:
        claim_id = runner.peek_claim_id()
        claim_words = claim_arguments(request, claim_id)
        rows = await runner.connection.fetch(SQL.settle_and_claim, *values, *claim_words)
        claims = decode_claims(runner, rows, claim_id)
    left = set(map(int, rows[0]["unsettled"]))
    ended = [item.job for number, item in enumerate(settlements, 1) if _is_final(item) and number not in left]
    topics = [queue_topic(queue) for queue in rows[0]["wakes"] or ()]
    if rows[0]["marked"]:
        topics.append(worklist_topic(DocumentKind.FLOW))
    runner.connection.announce(topics, ended)
    return left, claims


def _is_final(item: Settlement) -> bool:
    return isinstance(item.outcome, _FINAL)


async def settle_in_transaction(
    runner: PostgresEngineRunner, transaction: PostgresTransaction, settlements: Sequence[Settlement]
) -> list[WriteAnswer]:
    """Settles jobs in the given transaction and returns one answer each. The caller commits the transaction,
    together with its own writes."""
    plan = read_sets.settle(settlements, None)
    settled = await runner.run_in(
        transaction, plan, lambda records: engine.settle(records, settlements, None)
    )
    return settled.answers


async def _settle_by_engine(
    runner: PostgresEngineRunner,
    settlements: Sequence[Settlement],
    request: ClaimRequest | None,
    began: float,
) -> SettleResult:
    plan = read_sets.settle(settlements, request)
    settled, decided = await runner.run_timed(
        plan, lambda records: engine.settle(records, settlements, request)
    )
    if settled.claims is not None:
        settled.claims.after(decided - began)
    return settled


def _plain(settlements: Sequence[Settlement]) -> list[int]:
    """Returns the indexes of the settlements that the fast path can try; none if a job occurs twice. They are
    sorted by job id, the order in which engine transactions lock jobs, to prevent deadlocks."""
    if len({item.job for item in settlements}) < len(settlements):
        return []
    plain = [at for at, item in enumerate(settlements) if _may_be_plain(item)]
    return sorted(plain, key=lambda at: settlements[at].job)


def _may_be_plain(item: Settlement) -> bool:
    if item.spent is not None or item.charged is not None:
        return False
    if isinstance(item.outcome, JobRelease):
        return not item.outcome.unknown
    return isinstance(item.outcome, Success | FinalFailure | RetryLater | Cancellation | Snooze)


def _columns(settlements: Sequence[Settlement]) -> tuple[list[Any], ...]:
    kinds, result, error, reason, delay, priority = map(
        list, zip(*[_outcome_columns(item.outcome) for item in settlements], strict=True)
    )
    return (
        [item.job for item in settlements],
        text_array(collapse_equal([item.fence for item in settlements])),
        text_array(collapse_equal([item.claim for item in settlements])),
        collapse_equal(kinds),
        *map(omit_empty, (result, error, reason)),
        text_array(omit_empty(delay)),
        text_array(omit_empty(priority)),
    )


def _outcome_columns(outcome: Outcome) -> tuple[Any, ...]:
    """Returns (kind, result, error, reason, delay in seconds, priority), with None for absent values."""
    match outcome:
        case Success(result):
            return ("done", None if result is None else result.decode(), None, None, None, None)
        case FinalFailure(error, reason):
            return ("fail", None, json_text(error), reason, None, None)
        case RetryLater(delay, error, priority):
            return ("retry", None, json_text(error), None, delay, priority)
        case Snooze(delay, reason):
            return ("snooze", None, None, reason, delay, None)
        case Cancellation(reason):
            return ("cancelled", None, None, reason, None, None)
        case _:
            return ("release", None, None, None, None, None)
