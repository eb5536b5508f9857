"""Implements `claim`: takes ready jobs on the fast path, or in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncpg import Record

from tidemill.contract.coordination import queue_topic
from tidemill.core.claims import ClaimedJob, ClaimRequest, ClaimResult
from tidemill.engine import claim as engine
from tidemill.engine import read_sets
from tidemill.stores.postgres.engine_runner import PostgresEngineRunner
from tidemill.stores.postgres.rows import in_flow_of, text_array
from tidemill.stores.postgres.statements import load_statements

SQL = load_statements("fast_path")


async def claim(runner: PostgresEngineRunner, request: ClaimRequest) -> ClaimResult:
    began = runner.connection.clock.process_time()
    if may_be_plain(request):
        claim_id = runner.peek_claim_id()
        clock = runner.connection.clock.arguments()
        rows = await runner.connection.fetch(SQL.claim, *clock, *claim_arguments(request, claim_id))
        claims = decode_claims(runner, rows, claim_id)
        if claims is not None:
            return claims
    return await claim_by_engine(runner, request, began)


async def claim_by_engine(runner: PostgresEngineRunner, request: ClaimRequest, began: float) -> ClaimResult:
    """Claims jobs in the engine. `began`: when the caller asked, by this process's clock.
    `ClaimResult.waited` gets the seconds that the claim waited for other engine transactions (P20)."""
    claims, decided = await runner.run_timed(
        read_sets.claim(request), lambda records: engine.claim(records, request)
    )
    return claims.after(decided - began)


def may_be_plain(request: ClaimRequest) -> bool:
    """True if the fast path can try the claim: the request asks for no particular job ids, and names each
    queue only once."""
    queues = [share.queue for share in request.shares]
    return request.ids is None and len(set(queues)) == len(queues)


def claim_arguments(request: ClaimRequest, claim_id: int) -> tuple[Any, ...]:
    return (
        request.worker,
        request.number,
        [share.queue for share in request.shares],
        text_array(share.jobs for share in request.shares),
        request.limit,
        request.lease,
        claim_id,
    )


def decode_claims(runner: PostgresEngineRunner, rows: Sequence[Record], claim_id: int) -> ClaimResult | None:
    """Returns the claimed jobs from the rows that the fast path returned. Returns None if the caller must
    claim in the engine. The last row is no job; it has clocks and times."""
    last = rows[-1]
    runner.connection.clock.update(last["wall"], last["boot"], last["epoch"])
    if not last["plain"]:
        return None
    if len(rows) > 1:
        runner.entropy.claim_id()
    if last["promoted"]:
        runner.connection.announce(map(queue_topic, last["promoted"]))
    due = last["next_due"]
    return ClaimResult(
        jobs=[_claimed(row, claim_id) for row in rows[:-1]],
        more=last["more"],
        next_due=None if due is None else max(0.0, due - last["wall"]),
    )


def _claimed(row: Record, claim_id: int) -> ClaimedJob:
    """Returns the claimed job of a row. Reads the columns by position, which is faster than by name."""
    id_, queue, task, payload, attempts, priority, crashes, generation, *times, part, flow, fence = row[:15]
    timeout, trace, created, due = times
    claimed = ClaimedJob(
        id_,
        queue,
        task,
        payload.encode(),
        fence,
        claim_id,
        attempts + 1,
        priority,
        "",
        crashes,
        generation,
        timeout,
        trace,
        created,
        due,
        part,
    )
    if flow is not None:
        claimed.flow = in_flow_of(flow)
    return claimed
