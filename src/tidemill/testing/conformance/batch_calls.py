"""Conformance tests for the call that the jobs of a batch share: its reservations, its limits and how it
ends."""

from __future__ import annotations

import pytest

from tidemill.core.batching import BatchPolicy
from tidemill.core.jobs import NewJob
from tidemill.core.limits import Limit
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import Crash, SmallerBatch, Success, WriteAnswer
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import InsertVerdict, QueueSettings
from tidemill.core.states import State
from tidemill.testing.conformance.batches import batch_ids, batch_jobs
from tidemill.testing.conformance.fixtures import (
    CALL_NOT_MADE,
    SAMPLE_ERROR,
    CallCounter,
    StoreDriver,
    ids,
    need,
    new_job,
    usage_of_call,
)

REQUESTS, TOKENS = "requests per minute", "tokens per minute"
REQUEST_TOKEN_POOL = PoolSettings(
    limits=(Limit.requests(10, per="minute"), Limit.tokens(1_000, per="minute"))
)
BATCH_WITH_CALL_COST = BatchPolicy(max_items=8, call={"m": {"tokens": 50}})


def metered_jobs(names: str, tokens: float = 100, rule: BatchPolicy = BATCH_WITH_CALL_COST) -> list[NewJob]:
    return batch_jobs(names, rule, needs=(need("m", tokens=tokens),))


class TestBatchCalls:
    async def test_b4_one_reservation_for_the_whole_call(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        await driver.add(*metered_jobs("abcdefgh"))
        assert batch_ids(await driver.take()) == ["abcdefgh"]
        assert (await driver.used("m", REQUESTS), await driver.used("m", TOKENS)) == (1, 850)
        assert (await driver.pool("m")).reservations == 1

    async def test_b4_the_first_job_reports_the_usage_of_the_call(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        await driver.add(*metered_jobs("abcd"))
        first, *others = await driver.take()
        for job in others:
            assert await driver.settle(job) is WriteAnswer.OK
        assert await driver.used("m", TOKENS) == 450
        assert await driver.settle(first, spent=usage_of_call("m", tokens=300)) is WriteAnswer.OK
        assert (await driver.used("m", REQUESTS), await driver.used("m", TOKENS)) == (1, 300)
        assert (await driver.pool("m")).reservations == 0

    async def test_b4_a_call_that_was_not_made_returns_all_units(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        await driver.add(*metered_jobs("ab"))
        first, second = await driver.take()
        await driver.settle(second, SmallerBatch("x"))
        await driver.settle(first, SmallerBatch("x"), CALL_NOT_MADE)
        assert (await driver.used("m", REQUESTS), await driver.used("m", TOKENS)) == (0, 0)

    async def test_b3_the_longest_prefix_that_fits_is_granted(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        await driver.add(*metered_jobs("abcdefgh", 300), *metered_jobs("ij"))
        claims = await driver.claim()
        assert batch_ids(claims.jobs) == ["abc"], "50 and three times 300 of 1 000"
        assert await driver.used("m", TOKENS) == 950
        assert claims.more is False
        driver.clock.advance(61)
        assert batch_ids(await driver.take()) == ["def"]

    async def test_b3_a_short_pool_limits_the_units_of_all_pools(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools(
            {
                "m": REQUEST_TOKEN_POOL,
                "n": PoolSettings(limits=(Limit.tokens(250, per="minute"),), keyed=True),
            }
        )
        needs = (need("n", "k", tokens=100), need("m", tokens=10))
        await driver.add(
            *batch_jobs("abcd", BATCH_WITH_CALL_COST, needs=needs),
            *batch_jobs("e", BATCH_WITH_CALL_COST, needs=needs[::-1]),
        )
        assert batch_ids(await driver.take()) == ["ab"]
        assert (await driver.used("m", TOKENS), await driver.used("n", TOKENS, "k")) == (70, 200)

    async def test_b3_a_blocked_batch_is_not_tried_again_at_once(
        self, driver: StoreDriver, account_requests: CallCounter
    ) -> None:
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(1, per="minute"),))})
        await driver.add(*batch_jobs("abcdefghijklmnop", BATCH_WITHOUT_CALL_COST, needs=(need("m"),)))
        assert batch_ids(await driver.take()) == ["abcdefgh"]
        assert account_requests.since() <= 5
        for _ in range(5):
            claims = await driver.claim()
            assert (claims.jobs, claims.more, claims.batch_waits) == ([], False, False)
        assert account_requests.since() == 0
        driver.clock.advance(61)
        assert batch_ids(await driver.take()) == ["ijklmnop"]

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            (QueueSettings(concurrency=5), ["abcd", "e"]),
            (QueueSettings(concurrency=3), ["abc"]),
            (QueueSettings(key_concurrency=3), ["abc"]),
        ],
    )
    async def test_j35_b3_every_job_of_a_call_counts(
        self, driver: StoreDriver, settings: QueueSettings, expected: list[str]
    ) -> None:
        await driver.store.declare({"q": settings})
        await driver.add(*batch_jobs("abcdefgh", BatchPolicy(max_items=4), key="k"))
        claims = await driver.claim()
        assert (batch_ids(claims.jobs), claims.more) == (expected, False)
        assert await driver.take() == []
        await driver.settle(claims.jobs[0])
        assert len(await driver.take()) == 1

    async def test_j35_b3_batches_share_the_queues_capacity_with_other_jobs(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.declare({"q": QueueSettings(concurrency=3)})
        await driver.add(*batch_jobs("abc", BatchPolicy(max_items=2)), new_job("x"), new_job("y"))
        assert batch_ids(await driver.take()) == ["ab", "x"]

    async def test_j35_b3_the_lanes_of_a_key_share_its_capacity(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(key_concurrency=3)})
        for task in ("one", "two"):
            await driver.add(
                *batch_jobs({"one": "ab", "two": "cd"}[task], IMMEDIATE_BATCH_OF_8, key="k", task=task)
            )
        assert batch_ids(await driver.take()) == ["ab", "c"]

    async def test_b5_a_call_counts_once_in_the_claim_limit(self, driver: StoreDriver) -> None:
        await driver.add(
            *batch_jobs("abcdefgh", BatchPolicy(max_items=2)),
            *batch_jobs("i", key="k"),
            new_job("x", key="l"),
        )
        claims = await driver.claim(limit=2)
        assert (batch_ids(claims.jobs), claims.more) == (["ab", "x"], True)
        claims = await driver.claim(limit=3, shares=(("q", 1),))
        assert (batch_ids(claims.jobs), claims.more) == (["cd", "ef", "gh"], False)

    async def test_b3_j36_a_call_ends_before_an_expired_job(self, driver: StoreDriver) -> None:
        await driver.add(
            *batch_jobs("ab", IMMEDIATE_BATCH_OF_8),
            *batch_jobs("c", IMMEDIATE_BATCH_OF_8, expires=5),
            *batch_jobs("de", IMMEDIATE_BATCH_OF_8),
        )
        driver.clock.advance(5)
        assert batch_ids(await driver.take()) == ["ab", "de"]
        assert await driver.state("c") is State.CANCELLED

    async def test_b10_a_job_that_never_fits_alone_is_refused(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        (answer,) = await driver.add(*metered_jobs("a", 960))
        assert answer.verdict is InsertVerdict.INVALID
        assert "m" in (answer.problem or "")
        assert "tokens" in (answer.problem or "")
        (answer,) = await driver.add(*metered_jobs("a", 940))
        assert answer.verdict is InsertVerdict.ACCEPTED
        (answer,) = await driver.add(*batch_jobs("b", BATCH_WITH_CALL_COST))
        assert answer.problem, "the rule names a pool that the job does not need"

    async def test_b8_b10_a_job_claimed_by_id_reserves_a_whole_call(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        await driver.add(*metered_jobs("ab"))
        assert batch_ids((await driver.claim(named="a", shares=())).jobs) == ["a"]
        assert (await driver.used("m", REQUESTS), await driver.used("m", TOKENS)) == (1, 150)


BATCH_WITHOUT_CALL_COST = BatchPolicy(max_items=8)
IMMEDIATE_BATCH_OF_8 = BatchPolicy(max_items=8)


class TestReclaimedBatchCalls:
    async def test_b4_p14_a_lost_call_is_counted_again_once(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        await driver.add(*metered_jobs("abcd"))
        held = await driver.take()
        driver.clock.advance(31)
        assert (await driver.store.reclaim()).ready == ("a", "b", "c", "d")
        assert await driver.used("m", TOKENS) == 900
        assert (await driver.pool("m")).reservations == 0
        for job in held:
            assert await driver.settle(job, spent=usage_of_call("m", tokens=1)) is WriteAnswer.STALE
        assert await driver.used("m", TOKENS) == 900, "it ended with the reclaim"

    async def test_b7_suspects_are_split_in_halves(self, driver: StoreDriver) -> None:
        rule = BatchPolicy(max_items=8, linger=10)
        await driver.add(*batch_jobs("abcdefgh", rule), *batch_jobs("i", rule))
        await driver.take()
        driver.clock.advance(31)
        await driver.store.reclaim()
        taken = await driver.take()
        assert batch_ids(taken) == ["acde", "bfgh", "i"]
        assert [job.suspect for job in taken] == [True] * 8 + [False], "they run apart from other jobs"
        assert {job.crashes for job in taken} == {0, 1}

    async def test_b7_i8_a_crash_charges_a_suspect_only_when_it_runs_alone(self, driver: StoreDriver) -> None:
        """The first crash of a batch call counts for each of its jobs. A later crash counts only for a job
        that ran alone. Here every worker that runs "a" dies, so its batches shrink until "a" runs alone."""
        await driver.add(*batch_jobs("abcdefgh", BatchPolicy(max_items=8)))
        sizes: list[int] = []
        while (await driver.job("a")).crashes < 2:
            held = await driver.take()
            mine = next(job.call for job in held if job.id == "a")
            for job in held:
                if job.call != mine:
                    await driver.settle(job, Success(b"1"))
            sizes.append(sum(job.call == mine for job in held))
            driver.clock.advance(31)
            await driver.store.reclaim()
        assert sizes[0] == 8
        assert sizes[-1] == 1
        assert sizes == sorted(sizes, reverse=True)
        assert {(await driver.job(id_)).crashes for id_ in "bcdefgh"} == {1}

    async def test_b7_a_job_that_crashed_alone_runs_alone(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("ab", BatchPolicy(max_items=8)))
        for job in await driver.take():
            await driver.settle(job, Crash(SAMPLE_ERROR))
        assert [(job.id, job.crashes) for job in await driver.take()] == [("a", 1), ("b", 1)]
        driver.clock.advance(31)
        await driver.store.reclaim()
        assert batch_ids(await driver.take()) == ["a", "b"]

    async def test_b4_a_stale_first_job_books_the_call_once(self, driver: StoreDriver) -> None:
        """The store counts the usage of a call exactly once, even if the first job of the call was cancelled
        while it ran (P13, I6)."""
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        await driver.add(*metered_jobs("abc"))
        first, *others = await driver.take()
        await driver.amend(CancelJobs(), "a")
        for job in others:
            assert await driver.settle(job) is WriteAnswer.OK
        assert await driver.used("m", TOKENS) == 350
        for _ in range(2):
            assert await driver.settle(first, Success(), usage_of_call("m", tokens=80)) is WriteAnswer.STALE
            assert await driver.used("m", TOKENS) == 80

    async def test_b5_a_repeated_claim_without_its_first_job(self, driver: StoreDriver) -> None:
        """If the first job of a call was cancelled, a repeated claim returns the remaining jobs of the call.
        The id of the call stays the id of the cancelled job."""
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        await driver.add(*metered_jobs("abc"))
        request = driver.request()
        await driver.store.claim(request)
        await driver.amend(CancelJobs(), "a")
        repeated = (await driver.store.claim(request)).jobs
        assert [(job.id, job.call) for job in repeated] == [("b", "a"), ("c", "a")]

    async def test_j52_a_call_whose_reply_was_lost_returns_without_a_charge(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.declare_pools({"m": REQUEST_TOKEN_POOL})
        await driver.add(*metered_jobs("abcd"))
        await driver.take()
        assert await driver.beat() == ((), ("a", "b", "c", "d"))
        assert await driver.used("m", TOKENS) == 900, "the units count again: the call may have been sent"
        driver.clock.advance(61)
        taken = await driver.take()
        assert batch_ids(taken) == ["abcd"]
        assert ids(taken) == ["a", "b", "c", "d"]
        assert (await driver.job("a")).crashes == 0
