"""The store method `claim`: one script claims the jobs on the fast path. The engine claims if ready jobs have
a key, pool or batch."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tidemill.clock import Entropy, SystemEntropy
from tidemill.core.claims import ClaimRequest, ClaimResult, QueueShare
from tidemill.engine import claim as engine
from tidemill.engine import read_sets
from tidemill.stores.redis import scripts
from tidemill.stores.redis.engine_runner import RedisEngineRunner
from tidemill.stores.redis.job_codec import decode_claimed_job
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.shard import MAX_JOBS_PER_SCRIPT, MAX_JOBS_PER_TRANSACTION

CLAIM = scripts.load_script("claim")

NEEDS_ENGINE, NEEDS_CLAIM_ID = b"engine", b"claim_id"


async def claim(
    runner: RedisEngineRunner,
    request: ClaimRequest,
    draw: ClaimIdDraw | None = None,
    began: float | None = None,
) -> ClaimResult:
    """Claims jobs with one script (the fast path), or in the engine if the script cannot. `draw`: makes the
    claim id. `began`: when the caller asked, by this process's clock; None means now."""
    began = runner.shard.time() if began is None else began
    if request.ids is None:
        draw = draw or ClaimIdDraw(runner.entropy)
        reply = await runner.shard.run(CLAIM, *claim_arguments(request, draw), repeatable=True)
        if reply == NEEDS_CLAIM_ID:
            reply = await runner.shard.run(CLAIM, *claim_arguments(request, draw), repeatable=True)
        if reply != NEEDS_ENGINE:
            return decode_claims(reply, draw)
    return await claim_by_engine(runner, request, began)


async def claim_by_engine(runner: RedisEngineRunner, request: ClaimRequest, began: float) -> ClaimResult:
    request = limit_request(request, MAX_JOBS_PER_TRANSACTION)
    plan = read_sets.claim(request)
    claims, decided = await runner.run_timed(plan, lambda records: engine.claim(records, request))
    return claims.after(decided - began)


def limit_request(request: ClaimRequest, most: int) -> ClaimRequest:
    """Returns the request with its limit reduced to `most` jobs. The numbers of jobs that it wants from each
    queue (`shares`) are reduced in proportion (J39)."""
    if request.limit <= most or request.ids is not None:
        return request
    shares = (QueueShare(share.queue, -(-share.jobs * most // request.limit)) for share in request.shares)
    return replace(request, limit=most, shares=tuple(shares))


class ClaimIdDraw:
    """Draws the random claim id of one claim.

    In a test with fixed random numbers, an id is drawn only if there is a job to claim, as in the engine. So
    the script is sent first without an id, and then with an id if it finds a job."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy, self._requests, self.claim_id = entropy, False, 0
        self._is_replayed = not isinstance(entropy, SystemEntropy)

    def word(self) -> bytes:
        if self._is_replayed and not self._requests:
            self._requests = True
            return b""
        self.claim_id = self._entropy.claim_id()
        return b"!" * self._is_replayed + self.claim_id.to_bytes(8)


def claim_arguments(request: ClaimRequest, draw: ClaimIdDraw) -> list[CommandArgument]:
    request = limit_request(request, MAX_JOBS_PER_SCRIPT)
    found: list[CommandArgument] = [
        request.worker,
        request.number,
        request.lease,
        draw.word(),
        request.limit,
        len(request.shares),
    ]
    for share in request.shares:
        found += (share.queue, share.jobs)
    return found


def decode_claims(reply: list[Any], draw: ClaimIdDraw) -> ClaimResult:
    fence, more, next_due = reply[:3]
    return ClaimResult(
        jobs=[
            decode_claimed_job(reply[at].decode(), reply[at + 1], fence, draw.claim_id)
            for at in range(3, len(reply), 2)
        ],
        more=bool(more),
        next_due=float(next_due) if next_due else None,
    )
