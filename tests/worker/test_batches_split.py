"""A failed batch is split until the bad item is found, unless the error concerns all items.

The handler records its calls in a list outside the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.bench import Bench, Virtually
from tests.worker.fake_provider import Refused
from tidemill.core.claims import ClaimedJob
from tidemill.core.jobs import Error, Job
from tidemill.core.limits import Limit
from tidemill.core.outcomes import FinalFailure, SmallerBatch
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.errors import GiveUp, RetryAfter, SnoozeFor
from tidemill.tasks.batches import OnError
from tidemill.telemetry.events import BatchSplit, JobReleased
from tidemill.worker.batch_outcomes import (
    MAX_REMEMBERED_BATCHES,
    BatchOutcome,
    BatchSplitter,
    is_account_wide,
)

ONCE = Retry(attempts=1)


class Poisoned(Exception):
    pass


class Embedding:
    """A handler that fails on a bad item, with a record of its calls."""

    def __init__(self, is_bad: Callable[[int], bool]) -> None:
        self.is_bad = is_bad
        self.calls: list[list[int]] = []

    async def embed(self, numbers: list[int]) -> list[int]:
        self.calls.append(numbers)
        bad = [number for number in numbers if self.is_bad(number)]
        if bad:
            raise Poisoned(f"cannot read {bad[0]}")
        return [number * number for number in numbers]


async def run(bench: Bench, embedding: Embedding, count: int = 100, **options: Any) -> list[Job]:
    async def embed(numbers: list[int]) -> list[int]:
        return await embedding.embed(numbers)

    bench.batch_task(embed, **{"max_items": 100, "retry": ONCE, **options})
    ids = await bench.items("embed", *range(count))
    worker = bench.worker(concurrency=3)
    running = bench.start(worker)
    await bench.ended(*ids)
    worker.stop()
    await running
    return [await bench.job(id_) for id_ in ids]


def check_outcomes(jobs: Sequence[Job], is_bad: Callable[[int], bool]) -> None:
    for number, job in enumerate(jobs):
        assert job.attempts == 1, "being divided costs no attempt"
        if is_bad(number):
            assert job.error is not None
            assert (job.state, job.error.type) == (State.FAILED, "Poisoned")
            assert job.error.message == f"cannot read {number}", "of its own error"
        else:
            assert (job.state, job.result) == (State.DONE, str(number * number).encode())


@pytest.mark.parametrize("bad", [0, 1, 37, 50, 99])
def test_one_poisoned_item_of_a_hundred_is_found_with_sixteen_calls(virtually: Virtually, bad: int) -> None:
    async def scenario(bench: Bench) -> None:
        embedding = Embedding(lambda number: number == bad)
        jobs = await run(bench, embedding)
        assert len(embedding.calls) <= 16
        check_outcomes(jobs, embedding.is_bad)
        splits = bench.events_of(BatchSplit)
        assert (splits[0].jobs, splits[0].parts) == (100, 2)
        assert (splits[0].error, splits[0].message) == ("Poisoned", f"cannot read {bad}")
        assert "split" in {event.reason for event in bench.events_of(JobReleased)}

    virtually(scenario)


def test_with_a_fifth_poisoned_the_rest_runs_singly(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        embedding = Embedding(lambda number: number % 5 == 2)
        jobs = await run(bench, embedding)
        check_outcomes(jobs, embedding.is_bad)
        assert len(embedding.calls) < 125, "halving to the end takes more"
        singles = [len(call) == 1 for call in embedding.calls]
        assert singles.count(True) > 60

    virtually(scenario)


def test_if_all_items_are_poisoned_each_fails_with_its_error(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        embedding = Embedding(lambda number: True)
        jobs = await run(bench, embedding, count=30)
        check_outcomes(jobs, embedding.is_bad)
        assert len(embedding.calls) < 50

    virtually(scenario)


def test_on_error_singles_tries_each_item_alone(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        embedding = Embedding(lambda number: number == 3)
        jobs = await run(bench, embedding, count=8, on_error="singles")
        check_outcomes(jobs, embedding.is_bad)
        assert [len(call) for call in embedding.calls] == [8] + [1] * 8

    virtually(scenario)


def test_on_error_fail_charges_every_job(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        embedding = Embedding(lambda number: number == 3)
        policy = Retry(attempts=2, first=5, jitter=0.5)
        jobs = await run(bench, embedding, count=8, on_error="fail", retry=policy)
        assert embedding.calls == [list(range(8))] * 2, "retried as they were, together"
        assert {(job.state, job.attempts) for job in jobs} == {(State.FAILED, 2)}
        assert {job.error.message for job in jobs if job.error} == {"cannot read 3"}

    virtually(scenario)


def test_the_error_of_a_lone_job_goes_through_the_retry_policy(virtually: Virtually) -> None:
    """It stays alone: its next attempts share no call with other jobs."""

    async def scenario(bench: Bench) -> None:
        embedding = Embedding(lambda number: number == 3)
        policy = Retry(attempts=3, first=5, jitter=0)
        jobs = await run(bench, embedding, count=8, retry=policy)
        assert [job.attempts for job in jobs] == [1, 1, 1, 3, 1, 1, 1, 1]
        assert [len(call) for call in embedding.calls if 3 in call] == [8, 4, 2, 1, 1, 1]
        assert jobs[3].state is State.FAILED

    virtually(scenario)


def test_a_result_of_the_wrong_length_is_an_error_of_the_call(virtually: Virtually) -> None:
    """A missing item is found like one that raises; no job gets the result of another."""

    async def scenario(bench: Bench) -> None:
        calls: list[int] = []

        async def embed(numbers: list[int]) -> list[int]:
            calls.append(len(numbers))
            return [number for number in numbers if number != 5]

        bench.batch_task(embed, max_items=100, retry=ONCE)
        ids = await bench.items("embed", *range(10))
        await bench.run_until_idle()
        jobs = [await bench.job(id_) for id_ in ids]
        assert [job.result for job in jobs] == [None if n == 5 else str(n).encode() for n in range(10)]
        error = jobs[5].error
        assert error is not None
        assert error.message.startswith("the handler was given 1 items and returned 0 results")
        assert len(calls) <= 9

    virtually(scenario)


@pytest.mark.parametrize("answer", [None, 7, "ab", {"a": 1, "b": 2}, {1, 2}])
def test_a_result_that_is_no_list_is_an_error(virtually: Virtually, answer: Any) -> None:
    async def scenario(bench: Bench) -> None:
        async def embed(numbers: list[int]) -> list[Any]:
            found: Any = answer
            return found  # type: ignore[no-any-return]

        bench.batch_task(embed, max_items=100, retry=ONCE)
        ids = await bench.items("embed", 1, 2)
        await bench.run_until_idle()
        for id_ in ids:
            error = (await bench.job(id_)).error
            assert error is not None
            assert error.type == "TypeError"
            assert error.message.endswith(f"returned {type(answer).__name__}")

    virtually(scenario)


def test_i16_a_429_splits_no_batch_and_costs_no_attempt(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[tuple[float, int]] = []
        refusals = {2: Refused(429, {"retry-after": "30"}), 4: Refused(401), 5: Refused(503)}
        pool = await bench.pool("api", Limit.requests(100, per="minute"), probe_every=10)

        async def embed(numbers: list[int]) -> list[int]:
            calls.append((asyncio.get_running_loop().time(), len(numbers)))
            if error := refusals.get(len(calls)):
                raise error
            if 3 in numbers:
                raise Poisoned("cannot read 3")
            return numbers

        bench.batch_task(embed, max_items=100, retry=ONCE, pool=pool)
        ids = await bench.items("embed", *range(8))
        worker = bench.worker(concurrency=1)
        running = bench.start(worker)
        await bench.ended(*ids)
        jobs = [await bench.job(id_) for id_ in ids]
        assert [job.state is State.DONE for job in jobs] == [n != 3 for n in range(8)]
        assert {job.attempts for job in jobs} == {1}
        sizes = [size for _, size in calls]
        for number in refusals:
            assert sizes[number - 1] == sizes[number], "the call that was refused is tried again as it was"
        assert calls[2][0] - calls[1][0] >= 30
        worker.stop()
        await running

    virtually(scenario)


@pytest.mark.parametrize(
    "error",
    [
        *(Refused(status) for status in (401, 402, 403, 408, 429, 500, 502, 503, 529)),
        TimeoutError("slow"),
        ConnectionResetError("reset"),
        ExceptionGroup("both", [ValueError("one"), Refused(500)]),
    ],
    ids=str,
)
def test_an_account_wide_error_retries_the_whole_batch(virtually: Virtually, error: Exception) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[list[int]] = []

        async def embed(numbers: list[int]) -> list[int]:
            calls.append(numbers)
            raise error

        bench.batch_task(embed, max_items=100, retry=Retry(attempts=2, first=5, jitter=0))
        ids = await bench.items("embed", 1, 2, 3)
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(*ids)
        assert calls == [[1, 2, 3]] * 2
        assert not bench.events_of(BatchSplit)
        worker.stop()
        await running

    virtually(scenario)


def test_which_errors_are_account_wide() -> None:
    wrapped = RuntimeError("the client gave up")
    wrapped.__cause__ = ConnectionRefusedError("nobody there")
    assert is_account_wide(wrapped)
    for error in (
        ValueError("bad text"),
        KeyError("id"),
        Refused(400),
        Refused(404),
        Refused(422),
        OSError(2, "no"),
    ):
        assert not is_account_wide(error)


def test_a_batch_that_is_too_large_for_its_provider_is_split(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[int] = []
        pool = await bench.pool("api", Limit.requests(100, per="minute"))

        async def embed(numbers: list[int]) -> list[int]:
            calls.append(len(numbers))
            if len(numbers) > 3 or 9 in numbers:
                raise Refused(413)
            return numbers

        bench.batch_task(embed, max_items=100, retry=Retry(attempts=5), pool=pool)
        ids = await bench.items("embed", *range(10))
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(*ids)
        jobs = [await bench.job(id_) for id_ in ids]
        assert [job.reason for job in jobs] == [None] * 9 + ["too large"]
        assert {job.attempts for job in jobs} == {1}
        worker.stop()
        await running

    virtually(scenario)


@pytest.mark.parametrize(
    ("error", "state", "attempts"),
    [
        (SnoozeFor(60, "later"), State.SCHEDULED, 0),
        (RetryAfter(60), State.SCHEDULED, 1),
        (GiveUp("never"), State.FAILED, 1),
    ],
)
def test_an_exit_that_the_handler_raises_applies_to_all_jobs(
    virtually: Virtually, error: Exception, state: State, attempts: int
) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[list[int]] = []

        async def embed(numbers: list[int]) -> list[int]:
            calls.append(numbers)
            raise error

        bench.batch_task(embed, max_items=100)
        ids = await bench.items("embed", 1, 2, 3)
        await bench.run_until_idle()
        assert calls == [[1, 2, 3]]
        jobs = [await bench.job(id_) for id_ in ids]
        assert {(job.state, job.attempts) for job in jobs} == {(state, attempts)}

    virtually(scenario)


def claimed(part: str = "", claim: int = 1) -> ClaimedJob:
    return ClaimedJob(
        id="j",
        queue="q",
        task="t",
        payload=b"{}",
        fence=1,
        claim=claim,
        attempt=1,
        priority=5,
        lane="",
        crashes=0,
        generation=0,
        timeout=None,
        trace=None,
        created=0.0,
        due=0.0,
        part=part,
    )


def calls_for(bad: set[int], count: int, rule: OnError = "bisect", *, depth: bool = False) -> list[list[int]]:
    """Returns the calls that a store and a worker make, one after the other, in either order."""
    splits = BatchSplitter()
    waiting = [("", list(range(count)))]
    calls: list[list[int]] = []
    named: set[str] = set()
    while waiting:
        part, numbers = waiting.pop(0)
        calls.append(numbers)
        lead = claimed(part, claim=len(calls))
        if not bad & {*numbers}:
            splits.note_success(lead, len(numbers))
            continue
        error = Error("Poisoned", "")
        outcomes = splits.outcomes(
            lead, [lead] * len(numbers), BatchOutcome([FinalFailure(error)] * len(numbers), error), rule
        )
        parts: dict[str, list[int]] = {}
        for number, outcome in zip(numbers, outcomes, strict=True):
            if isinstance(outcome, SmallerBatch):
                parts.setdefault(outcome.part, []).append(number)
            else:
                assert numbers == [number]
        assert not named & {*parts}, "a part is never called like another"
        named |= {*parts}
        waiting = [*parts.items(), *waiting] if depth else [*waiting, *parts.items()]
    return calls


@pytest.mark.parametrize("depth", [False, True])
def test_one_poisoned_item_anywhere_is_found_with_sixteen_calls(*, depth: bool) -> None:
    assert max(len(calls_for({bad}, 100, depth=depth)) for bad in range(100)) <= 16


@given(st.integers(1, 150), st.booleans(), st.data())
def test_splitting_ends_and_every_item_is_tried(count: int, depth: bool, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1)))
    calls = calls_for(bad, count, depth=depth)
    assert {number for call in calls for number in call} == {*range(count)}
    assert all([number] in calls for number in bad)
    assert len(calls) <= 2 * count
    lone = 1 + 2 * (count - 1).bit_length()
    assert len(bad) != 1 or len(calls) <= lone


@pytest.mark.parametrize(("share", "most"), [(5, 60), (10, 95), (20, 125), (50, 135), (100, 135)])
def test_with_many_bad_items_halving_stops_in_time(share: int, most: int) -> None:
    bad = {number for number in range(100) if (number * 37) % 100 < share}
    assert len(calls_for(bad, 100)) <= most
    assert len(calls_for(bad, 100, depth=True)) <= most


def test_the_history_of_split_batches_is_bounded() -> None:
    splits = BatchSplitter()
    for number in range(MAX_REMEMBERED_BATCHES + 50):
        splits.note_success(claimed(f"origin{number}/x.0"), 1)
    assert len(splits._seen) == MAX_REMEMBERED_BATCHES
