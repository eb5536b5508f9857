"""claim: ready jobs go into a worker's hands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncpg import Record

from tidemill.contract.wakeups import queue_topic
from tidemill.core.claims import Claimed, ClaimRequest, Claims
from tidemill.engine import claim as engine
from tidemill.engine import plans
from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.rows import in_flow_of
from tidemill.stores.postgres.statements import load

SQL = load("plain")


async def claim(home: Home, request: ClaimRequest) -> Claims:
    began = home.connection.clock.own()
    if may_be_plain(request):
        claim_id = home.peek_claim_id()
        asked = home.connection.clock.asked()
        rows = await home.connection.fetch(SQL.claim, *asked, *values_of(request, claim_id))
        claims = claims_of(home, rows, claim_id)
        if claims is not None:
            return claims
    return await claim_slowly(home, request, began)


async def claim_slowly(home: Home, request: ClaimRequest, began: float) -> Claims:
    """`began` is when the verb was called, by our own clock (P20)."""
    claims, decided = await home.run_timed(
        plans.claim(request), lambda records: engine.claim(records, request)
    )
    return claims.after(decided - began)


def may_be_plain(request: ClaimRequest) -> bool:
    """Of several shares of one queue only a step makes sense."""
    queues = [share.queue for share in request.shares]
    return request.ids is None and len(set(queues)) == len(queues)


def values_of(request: ClaimRequest, claim_id: int) -> tuple[Any, ...]:
    return (
        request.worker,
        request.number,
        [share.queue for share in request.shares],
        words(share.jobs for share in request.shares),
        request.limit,
        request.lease,
        claim_id,
    )


def claims_of(home: Home, rows: Sequence[Record], claim_id: int) -> Claims | None:
    """None when it was not for the hot path. The last row is no job: it says how it went."""
    last = rows[-1]
    home.connection.clock.heard(last["wall"], last["boot"], last["epoch"])
    if not last["plain"]:
        return None
    if len(rows) > 1:
        home.entropy.claim_id()
    if last["promoted"]:
        home.connection.announce(map(queue_topic, last["promoted"]))
    due = last["next_due"]
    return Claims(
        jobs=[_claimed(row, claim_id) for row in rows[:-1]],
        more=last["more"],
        next_due=None if due is None else max(0.0, due - last["wall"]),
    )


def _claimed(row: Record, claim_id: int) -> Claimed:
    """By their places: names would be looked up for every column of every job."""
    id_, queue, task, payload, attempts, priority, crashes, generation, *times, part, flow, fence = row[:15]
    timeout, trace, created, due = times
    claimed = Claimed(
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
