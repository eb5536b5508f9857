"""settle: plain jobs by one script, which claims the next ones too; the others by the engine."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from tidemill.core.claims import ClaimRequest, Claims, Settled, Settlement
from tidemill.core.outcomes import Answer, Cancelled, Done, Fail, Outcome, Release, Retrying, Snooze
from tidemill.engine import plans
from tidemill.engine import settle as engine
from tidemill.stores.redis import claim, scripts
from tidemill.stores.redis.claim import CLAIM_WANTED, SLOW, Draw
from tidemill.stores.redis.keys import token
from tidemill.stores.redis.records import TIME, Fate, encode
from tidemill.stores.redis.slow import Slow
from tidemill.stores.redis.wire import Argument

SETTLE = scripts.load("settle")
RETRY = Struct(">cdBh")
ANSWERS: Final = {"o": Answer.OK, "a": Answer.AGAIN, "s": Answer.STALE}
UNKNOWN = "?"


async def settle(slow: Slow, settlements: Sequence[Settlement], request: ClaimRequest | None) -> Settled:
    """What the script leaves is settled next, and then the claim is made: no outcome depends on another's,
    but for the jobs of one call, which all go the same way."""
    if not settlements:
        return Settled([], None if request is None else await claim.claim(slow, request))
    words = [_words_of(item) for item in settlements]
    if len({item.job for item in settlements}) < len(settlements):
        words = [None for _ in settlements]
    draw = Draw(slow.entropy)
    letters, claimed = await _by_the_script(slow, [one for one in words if one], request, draw)
    answers: list[Answer | None] = [ANSWERS.get(next(letters)) if one else None for one in words]
    left = [item for item, answer in zip(settlements, answers, strict=True) if answer is None]
    settled = Settled([])
    if left:
        settled = await slow.run(plans.settle(left, None), lambda records: engine.settle(records, left, None))
    others = iter(settled.answers)
    found = [next(others) if answer is None else answer for answer in answers]
    return Settled(found, await _claims(slow, claimed, request, draw), settled.news)


async def _by_the_script(
    slow: Slow, words: list[tuple[Argument, ...]], request: ClaimRequest | None, draw: Draw
) -> Any:
    """The letters of its answers, and what it claimed."""
    if not words:  # none that the script knows
        return iter(""), None
    wanted = [] if request is None or request.ids is not None else claim.words(request, draw)
    reply = await slow.shard.run(
        SETTLE, len(words), *(word for one in words for word in one), *wanted, repeatable=True
    )
    return iter(reply[0].decode()), reply[1] if len(reply) > 1 else None


async def _claims(slow: Slow, claimed: Any, request: ClaimRequest | None, draw: Draw) -> Claims | None:
    if request is None:
        return None
    if claimed == SLOW:
        return await claim.by_the_engine(slow, request)
    if claimed is None or claimed == CLAIM_WANTED:
        return await claim.claim(slow, request, draw if claimed else None)
    return claim.claims(claimed, draw)


def _words_of(item: Settlement) -> tuple[Argument, ...] | None:
    """None for what the script does not know."""
    outcome = None if item.spent is not None else _outcome(item.outcome)
    return None if outcome is None else (item.job, token(item.fence, item.claim), outcome)


def _outcome(outcome: Outcome) -> bytes | None:
    match outcome:
        case Done(None):
            return b"d"
        case Done(result) if result is not None:
            return b"d+" + result
        case Fail(error, reason):
            return b"f" + encode(Fate(error, reason))
        case Cancelled(reason):
            return b"c" + encode(Fate(None, reason))
        case Retrying(delay, error, priority):
            changes = priority is not None
            return RETRY.pack(b"r", delay, changes, priority or 0) + encode(Fate(error))
        case Snooze(delay, None):
            return b"z" + TIME.pack(delay)
        case Release(unknown=False):
            return b"b"
    return None
