"""claim: one script where all that is ready is plain, else the engine."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tidemill.clock import Entropy, SystemEntropy
from tidemill.core.claims import ClaimRequest, Claims, Share
from tidemill.engine import claim as engine
from tidemill.engine import plans
from tidemill.stores.redis import scripts
from tidemill.stores.redis.bounds import JOBS, STEPPED
from tidemill.stores.redis.records import in_hand
from tidemill.stores.redis.slow import Slow
from tidemill.stores.redis.wire import Argument

CLAIM = scripts.load("claim")

SLOW, CLAIM_WANTED = b"slow", b"claim"


async def claim(
    slow: Slow, request: ClaimRequest, draw: Draw | None = None, began: float | None = None
) -> Claims:
    """`draw`: of a claim that was begun already. `began` is when the verb was called, by our own clock."""
    began = slow.shard.time() if began is None else began
    if request.ids is None:
        draw = draw or Draw(slow.entropy)
        reply = await slow.shard.run(CLAIM, *words(request, draw), repeatable=True)
        if reply == CLAIM_WANTED:
            reply = await slow.shard.run(CLAIM, *words(request, draw), repeatable=True)
        if reply != SLOW:
            return claims(reply, draw)
    return await by_the_engine(slow, request, began)


async def by_the_engine(slow: Slow, request: ClaimRequest, began: float) -> Claims:
    request = bounded(request, STEPPED)
    plan = plans.claim(request)
    claims, decided = await slow.run_timed(plan, lambda records: engine.claim(records, request))
    return claims.after(decided - began)


def bounded(request: ClaimRequest, most: int) -> ClaimRequest:
    """As much of it as one step may take on, in the same proportions (J39)."""
    if request.limit <= most or request.ids is not None:
        return request
    shares = (Share(one.queue, -(-one.jobs * most // request.limit)) for one in request.shares)
    return replace(request, limit=most, shares=tuple(shares))


class Draw:
    """The claim id of one claim. An entropy that can be replayed is asked when there is something to claim
    and not before, as the specification does; that takes a second trip, which is for tests only."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy, self._asked, self.claim_id = entropy, False, 0
        self._is_replayed = not isinstance(entropy, SystemEntropy)

    def word(self) -> bytes:
        if self._is_replayed and not self._asked:
            self._asked = True
            return b""
        self.claim_id = self._entropy.claim_id()
        return b"!" * self._is_replayed + self.claim_id.to_bytes(8)


def words(request: ClaimRequest, draw: Draw) -> list[Argument]:
    request = bounded(request, JOBS)
    found: list[Argument] = [
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


def claims(reply: list[Any], draw: Draw) -> Claims:
    fence, more, next_due = reply[:3]
    return Claims(
        jobs=[
            in_hand(reply[at].decode(), reply[at + 1], fence, draw.claim_id) for at in range(3, len(reply), 2)
        ],
        more=bool(more),
        next_due=float(next_due) if next_due else None,
    )
