"""settle: plain jobs by one script, which claims the next ones too; the others by the engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Any, Final

from tidemill.core.claims import ClaimRequest, Claims, Settled, Settlement
from tidemill.core.outcomes import Answer, Cancelled, Done, Fail, Outcome, Release, Retrying, Snooze
from tidemill.core.pool_news import PoolNews
from tidemill.engine import plans
from tidemill.engine import settle as engine
from tidemill.stores.redis import claim, scripts
from tidemill.stores.redis.bounds import JOBS, fitting
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
    """By several scripts where there are many. What they leave is settled next, and then the claim is made:
    no outcome depends on another's, but for the jobs of one call, which all go the same way."""
    if not settlements:
        return Settled([], None if request is None else await claim.claim(slow, request))
    began = slow.shard.time()
    words = [_words_of(item) for item in settlements]
    if len({item.job for item in settlements}) < len(settlements):
        words = [None for _ in settlements]
    draw = Draw(slow.entropy)
    then = request if all(words) else None  # room that the others make is room for the claim
    letters, claimed = await _by_the_script(slow, [one for one in words if one], then, draw)
    answers: list[Answer | None] = [ANSWERS.get(next(letters)) if one else None for one in words]
    left = [item for item, answer in zip(settlements, answers, strict=True) if answer is None]
    settled = await _by_the_engine(slow, left)
    others = iter(settled.answers)
    found = [next(others) if answer is None else answer for answer in answers]
    return Settled(found, await _claims(slow, claimed, request, draw, began), settled.news)


async def _by_the_script(
    slow: Slow, words: list[tuple[Argument, ...]], request: ClaimRequest | None, draw: Draw
) -> Any:
    """The letters of its answers, and what it claimed behind the last of them."""
    if not words:  # none that the script knows
        return iter(""), None
    wanted = [] if request is None or request.ids is not None else claim.words(request, draw)
    letters, claimed = "", None
    while some := words[len(letters) : len(letters) + JOBS]:
        is_last = len(letters) + len(some) == len(words) and UNKNOWN not in letters
        given = (word for one in some for word in one)
        reply = await slow.shard.run(SETTLE, len(some), *given, *(wanted if is_last else ()), repeatable=True)
        letters += reply[0].decode()
        claimed = reply[1] if len(reply) > 1 else None
    return iter(letters), claimed


async def _by_the_engine(slow: Slow, left: Sequence[Settlement]) -> Settled:
    answers: list[Answer] = []
    news: list[PoolNews] = []
    while some := left[len(answers) :]:
        some = some[: _whole_calls(some, await fitting(slow.shard, [item.job for item in some]))]
        settled = await slow.run(
            plans.settle(some, None), partial(engine.settle, settlements=some, request=None)
        )
        answers += settled.answers
        news += settled.news
    return Settled(answers, None, tuple(news))


def _whole_calls(items: Sequence[Settlement], count: int) -> int:
    """The first job of a call speaks for those behind it, so they are settled together (P17)."""
    while count < len(items) and items[count].charged is not None and items[count].spent is None:
        count += 1
    return count


async def _claims(
    slow: Slow, claimed: Any, request: ClaimRequest | None, draw: Draw, began: float
) -> Claims | None:
    if request is None:
        return None
    if claimed == SLOW:
        return await claim.by_the_engine(slow, request, began)
    if claimed is None or claimed == CLAIM_WANTED:
        return await claim.claim(slow, request, draw if claimed else None, began)
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
