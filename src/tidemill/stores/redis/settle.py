"""The store method `settle`: one script settles many jobs and claims the next ones (the fast path). The
engine settles jobs with pools or a unique key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Any, Final

from tidemill.core.claims import ClaimRequest, ClaimResult, Settlement, SettleResult
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
from tidemill.core.pool_statistics import PoolChange
from tidemill.engine import read_sets
from tidemill.engine import settle as engine
from tidemill.stores.redis import claim, scripts
from tidemill.stores.redis.claim import NEEDS_CLAIM_ID, NEEDS_ENGINE, ClaimIdDraw
from tidemill.stores.redis.engine_runner import RedisEngineRunner
from tidemill.stores.redis.job_codec import TIME, FailureText, encode
from tidemill.stores.redis.keys import token
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.shard import MAX_JOBS_PER_SCRIPT, count_fitting

SETTLE = scripts.load_script("settle")
RETRY_LAYOUT = Struct(">cdBh")
ANSWER_LETTERS: Final = {"o": WriteAnswer.OK, "a": WriteAnswer.AGAIN, "s": WriteAnswer.STALE}
NEEDS_ENGINE_LETTER = "?"


async def settle(
    runner: RedisEngineRunner, settlements: Sequence[Settlement], request: ClaimRequest | None
) -> SettleResult:
    """Settles jobs on the fast path first, and then the other jobs in the engine. If `request` is given,
    claims the next jobs at the end."""
    if not settlements:
        return SettleResult([], None if request is None else await claim.claim(runner, request))
    began = runner.shard.time()
    words = [_arguments(item) for item in settlements]
    if len({item.job for item in settlements}) < len(settlements):
        words = [None for _ in settlements]
    draw = ClaimIdDraw(runner.entropy)
    then = request if all(words) else None  # the claim may use the capacity that the other jobs free
    letters, claimed = await _settle_by_script(
        runner, [arguments for arguments in words if arguments], then, draw
    )
    answers: list[WriteAnswer | None] = [
        ANSWER_LETTERS.get(next(letters)) if arguments else None for arguments in words
    ]
    left = [item for item, answer in zip(settlements, answers, strict=True) if answer is None]
    settled = await _settle_by_engine(runner, left)
    others = iter(settled.answers)
    found = [next(others) if answer is None else answer for answer in answers]
    return SettleResult(found, await _claims(runner, claimed, request, draw, began), settled.pool_changes)


async def _settle_by_script(
    runner: RedisEngineRunner,
    words: list[tuple[CommandArgument, ...]],
    request: ClaimRequest | None,
    draw: ClaimIdDraw,
) -> Any:
    """Settles jobs on the fast path. Returns an iterator over answer letters, one per settlement, and the
    script's reply to the claim (None without a claim). `words`: the script's arguments for each
    settlement."""
    if not words:  # the script knows none of them
        return iter(""), None
    claim_words = [] if request is None or request.ids is not None else claim.claim_arguments(request, draw)
    letters, claimed = "", None
    while some := words[len(letters) : len(letters) + MAX_JOBS_PER_SCRIPT]:
        is_last = len(letters) + len(some) == len(words) and NEEDS_ENGINE_LETTER not in letters
        settle_words = (word for arguments in some for word in arguments)
        reply = await runner.shard.run(
            SETTLE, len(some), *settle_words, *(claim_words if is_last else ()), repeatable=True
        )
        letters += reply[0].decode()
        claimed = reply[1] if len(reply) > 1 else None
    return iter(letters), claimed


async def _settle_by_engine(runner: RedisEngineRunner, left: Sequence[Settlement]) -> SettleResult:
    answers: list[WriteAnswer] = []
    pool_changes: list[PoolChange] = []
    while some := left[len(answers) :]:
        some = some[: _whole_calls(some, await count_fitting(runner.shard, [item.job for item in some]))]
        settled = await runner.run(
            read_sets.settle(some, None), partial(engine.settle, settlements=some, request=None)
        )
        answers += settled.answers
        pool_changes += settled.pool_changes
    return SettleResult(answers, None, tuple(pool_changes))


def _whole_calls(items: Sequence[Settlement], count: int) -> int:
    """Returns how many items to settle in one transaction: `count`, or more to keep the jobs of a batch call
    together. Only the first of these jobs has the usage of the call (P17)."""
    while count < len(items) and items[count].charged is not None and items[count].spent is None:
        count += 1
    return count


async def _claims(
    runner: RedisEngineRunner, claimed: Any, request: ClaimRequest | None, draw: ClaimIdDraw, began: float
) -> ClaimResult | None:
    if request is None:
        return None
    if claimed == NEEDS_ENGINE:
        return await claim.claim_by_engine(runner, request, began)
    if claimed is None or claimed == NEEDS_CLAIM_ID:
        return await claim.claim(runner, request, draw if claimed else None, began)
    return claim.decode_claims(claimed, draw)


def _arguments(item: Settlement) -> tuple[CommandArgument, ...] | None:
    """Returns the script's arguments for one settlement; None if the settlement needs the engine."""
    outcome = None if item.spent is not None else _outcome(item.outcome)
    return None if outcome is None else (item.job, token(item.fence, item.claim), outcome)


def _outcome(outcome: Outcome) -> bytes | None:
    match outcome:
        case Success(None):
            return b"d"
        case Success(result) if result is not None:
            return b"d+" + result
        case FinalFailure(error, reason):
            return b"f" + encode(FailureText(error, reason))
        case Cancellation(reason):
            return b"c" + encode(FailureText(None, reason))
        case RetryLater(delay, error, priority):
            changes = priority is not None
            return RETRY_LAYOUT.pack(b"r", delay, changes, priority or 0) + encode(FailureText(error))
        case Snooze(delay, None):
            return b"z" + TIME.pack(delay)
        case JobRelease(unknown=False):
            return b"b"
    return None
