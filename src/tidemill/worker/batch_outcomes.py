"""Decides the outcome of each job of a batch, and splits a failed batch to find the bad item."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.core.claims import ClaimedJob
from tidemill.core.jobs import Error
from tidemill.core.outcomes import Crash, FinalFailure, Outcome, RetryLater, SmallerBatch, Success
from tidemill.core.retry import Retry, decide_retry
from tidemill.core.transitions import excuse_count
from tidemill.errors import AttemptExit, SnoozeFor
from tidemill.feedback.provider_reply import group_members, unpack_reply
from tidemill.feedback.send_status import is_network_error
from tidemill.tasks.batches import FailedItem, OnError
from tidemill.tasks.payload import ResultCodec
from tidemill.tasks.usage import UnitsUnavailable, UsageMeter
from tidemill.worker.attempt import replace_unstorable
from tidemill.worker.outcomes import (
    MAX_MESSAGE_CHARACTERS,
    OutcomeSignal,
    decide_refusal,
    describe_error,
    outcome_of_error,
)

BatchItem = Success | FailedItem | FinalFailure
"""One element of a batch result, as a child process sends it."""

ACCOUNT_WIDE_STATUSES = frozenset({401, 402, 403, 408, 429})
"""Statuses that concern the whole account: every other item would get them too. So does 500 and above."""
MIN_SERVER_ERROR_STATUS = 500


class BatchOutcome(msgspec.Struct, frozen=True, tag="batch outcome"):
    """The outcomes of a batch whose call failed.

    - `outcomes`: one outcome per job; used unless the batch is split.
    - `error`: the error of the call. None if no single item can have caused it; the batch is then not split.
    - `charged`: empty, or one second outcome per job. The store uses it if the provider was overloaded too
      often."""

    outcomes: list[Outcome]
    error: Error | None = None
    charged: list[Outcome] = msgspec.field(default_factory=list)


class BatchOutcomeSignal(Exception):
    """An exception that carries a batch outcome from a child process to the worker's code."""

    def __init__(self, verdict: BatchOutcome) -> None:
        super().__init__("a call has ended")
        self.verdict = verdict


def check_results(results: Any, count: int) -> Sequence[Any]:
    """Returns the results of a batch handler if they are a list or tuple of `count` elements.

    Raises TypeError or ValueError otherwise."""
    if not isinstance(results, list | tuple):
        raise TypeError(
            f"the handler must return a list with a result for each of its {count} items, "
            f"returned {type(results).__name__}"
        )
    if len(results) != count:
        raise ValueError(
            f"the handler was given {count} items and returned {len(results)} results: nobody can tell which "
            "belongs to which; return Failed(…) in the place of an item without a result"
        )
    return results


def decide_results(
    results: Sequence[Any], codec: ResultCodec, jobs: Sequence[ClaimedJob], policy: Retry, chance: float
) -> list[Outcome]:
    return [
        _decide_item(result, codec, job, policy, chance) for result, job in zip(results, jobs, strict=True)
    ]


def decide_batch_error(
    error: BaseException, meter: UsageMeter | None, jobs: Sequence[ClaimedJob], policy: Retry, chance: float
) -> BatchOutcome:
    """Returns the outcomes of a batch whose handler raised `error`.

    - `meter`: knows the refusals of the call; None without pools.
    - `chance`: a random number between 0 and 1 for the retry delay."""
    if isinstance(error, BatchOutcomeSignal):
        return error.verdict
    if isinstance(error, OutcomeSignal):
        died = error.outcome.error if isinstance(error.outcome, Crash) and len(jobs) > 1 else None
        return BatchOutcome([error.outcome] * len(jobs), died)
    if isinstance(error, UnitsUnavailable):  # a single job of a batch cannot wait for units
        error = SnoozeFor(error.delay, error.reason)
    outcomes = [outcome_of_error(error, policy, job.attempt, job.priority, chance) for job in jobs]
    if (
        meter is not None
        and (refusal := decide_refusal(meter, error, max(jobs, key=excuse_count))) is not None
    ):
        too_large = refusal.outcome.error if isinstance(refusal.outcome, FinalFailure) else None
        return BatchOutcome([refusal.outcome] * len(jobs), too_large, outcomes if refusal.overloaded else [])
    is_indivisible = isinstance(error, AttemptExit) or is_account_wide(error)
    return BatchOutcome(outcomes, None if is_indivisible else describe_error(error))


def is_account_wide(error: BaseException) -> bool:
    """True if the error concerns the whole account or provider and not one item. Examples are network errors,
    401, 429 and every status from 500."""
    return any(_is_account_wide(member) for member in group_members(error))


def _is_account_wide(error: BaseException) -> bool:
    if (status := unpack_reply(error).status) is not None:
        return status in ACCOUNT_WIDE_STATUSES or status >= MIN_SERVER_ERROR_STATUS
    return is_network_error(error)


def _decide_item(result: Any, codec: ResultCodec, job: ClaimedJob, policy: Retry, chance: float) -> Outcome:
    if isinstance(result, FinalFailure):  # a child process could not encode this result
        return result
    if isinstance(result, FailedItem):
        return _decide_failed_item(result, job, policy, chance)
    return encode_result(result, codec)


def encode_result(result: Any, codec: ResultCodec) -> Success | FinalFailure:
    try:
        return Success(codec.encode(result))
    except Exception as error:  # noqa: BLE001 - encoding runs a user's own methods
        return FinalFailure(describe_error(error), "result cannot be stored")


def _decide_failed_item(failed: FailedItem, job: ClaimedJob, policy: Retry, chance: float) -> Outcome:
    """Returns the outcome of an item for which the handler returned `FailedItem`. Its `retry` flag decides
    whether the item is retried."""
    error = Error("FailedItem", replace_unstorable(str(failed.reason))[:MAX_MESSAGE_CHARACTERS])
    if not failed.retry:
        return FinalFailure(error)
    policy = msgspec.structs.replace(policy, on=(), give_up_on=())
    decision = decide_retry(policy, _ITEM_ERROR, job.attempt, job.priority, chance)
    return (
        FinalFailure(error)
        if decision.delay is None
        else RetryLater(decision.delay, error, decision.priority)
    )


_ITEM_ERROR = Exception()


MAX_BAD_SHARE = 0.15
"""Share of bad items above which failed parts are split into single items. Simulated calls for 100 items
with 5, 10, 20, 50 bad ones: 48, 77, 111, 127. Halving to the end takes 48, 75, 113, 173."""
MIN_CALLS_PER_SIZE = 4
"""Calls of one size before the share is judged; one bad item alone makes two calls of each size."""
MAX_REMEMBERED_BATCHES = 1000


class SplitHistory:
    """Counts the items in parts that succeeded and in parts that failed. A part is a smaller batch, made by
    splitting a failed batch.

    Parts of similar size are counted together."""

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()
        self._good: Counter[int] = Counter()
        self._bad: Counter[int] = Counter()

    def note(self, size: int, *, good: bool) -> None:
        level = _size_class(size)
        self._calls[level] += 1
        (self._good if good else self._bad)[level] += size

    def has_too_many(self, size: int) -> bool:
        """True if probably more than 15 % of the items are bad. The caller then splits a failed part of
        `size` items into single items."""
        level = _size_class(size)
        if self._calls[level] < MIN_CALLS_PER_SIZE:
            return False
        good = sum(items for at, items in self._good.items() if at >= level)
        share = self._bad[level] / (self._bad[level] + good)
        share = min(
            share, 1 - 0.5 / self._calls[level]
        )  # all parts failed, which does not mean that all items are bad
        return bool(1 - (1 - share) ** (1 / size) > MAX_BAD_SHARE)


class BatchSplitter:
    """Splits failed batches into parts (smaller batches) and gives each part a unique name.

    The name is `original/split.number`:

    - `original`: the name of the batch before its first split.
    - `split`: the name of this split.
    - `number`: counts the parts of this split."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, SplitHistory] = OrderedDict()
        self._number = 0

    def note_success(self, lead: ClaimedJob, size: int) -> None:
        if origin := _original_batch(lead):
            self._of(origin).note(size, good=True)

    def outcomes(
        self, lead: ClaimedJob, jobs: Sequence[ClaimedJob], verdict: BatchOutcome, rule: OnError
    ) -> list[Outcome]:
        """Returns one outcome per job of a batch that failed as a whole (I8). If the batch is split, each job
        gets a `SmallerBatch`, which names its new batch. Otherwise the outcomes of `verdict` apply.

        - `lead`: the first job of the batch.
        - `rule`: the task's `on_error`."""
        size = len(jobs)
        if verdict.error is None or size == 1:
            return verdict.outcomes
        if rule == "fail" and not isinstance(
            verdict.outcomes[0], Crash
        ):  # no job pays for a neighbour's crash (I8)
            return verdict.outcomes
        self._number += 1
        name = f"{lead.claim:x}-{self._number}"
        origin = _original_batch(lead) or name
        seen = self._of(origin)
        seen.note(size, good=False)
        most = (size + 1) // 2 if rule == "bisect" and not seen.has_too_many(size) else 1
        return [SmallerBatch(f"{origin}/{name}.{index // most}") for index in range(size)]

    def _of(self, origin: str) -> SplitHistory:
        seen = self._seen.setdefault(origin, SplitHistory())
        self._seen.move_to_end(origin)
        while len(self._seen) > MAX_REMEMBERED_BATCHES:
            self._seen.popitem(last=False)
        return seen


def _original_batch(lead: ClaimedJob) -> str:
    """Returns the name of the batch before its first split; '' if the batch of `lead` does not come from a
    split."""
    return lead.part.partition("/")[0]


def _size_class(size: int) -> int:
    return (size - 1).bit_length()
