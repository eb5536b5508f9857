"""One call of several jobs: what it takes of its pools, what limits it, and how it ends."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.core.batching import Batching
from tidemill.core.changes import Cancel
from tidemill.core.job import NewJob
from tidemill.core.limits import Limit
from tidemill.core.outcomes import Answer, Crashed, Done, Split
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings, Verdict
from tidemill.core.states import State
from tidemill.testing.conformance.batching import batch, calls
from tidemill.testing.conformance.counting import Counted
from tidemill.testing.conformance.driver import OOPS, UNMADE, Driver, ids, need, new, using

REQUESTS, TOKENS = "requests per minute", "tokens per minute"
POOL = PoolSettings(limits=(Limit.requests(10, per="minute"), Limit.tokens(1_000, per="minute")))
EIGHT = Batching(max_items=8, call={"m": {"tokens": 50}})


def metered(names: str, tokens: float = 100, rule: Batching = EIGHT) -> list[NewJob]:
    return batch(names, rule, needs=(need("m", tokens=tokens),))


class TestCalls:
    async def test_b4_one_reservation_for_the_whole_call(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*metered("abcdefgh"))
        assert calls(await drive.take()) == ["abcdefgh"]
        assert (await drive.used("m", REQUESTS), await drive.used("m", TOKENS)) == (1, 850)
        assert (await drive.pool("m")).reservations == 1

    async def test_b4_what_the_first_one_spent_is_what_the_call_spent(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*metered("abcd"))
        first, *others = await drive.take()
        for job in others:
            assert await drive.settle(job) is Answer.OK
        assert await drive.used("m", TOKENS) == 450
        assert await drive.settle(first, spent=using("m", tokens=300)) is Answer.OK
        assert (await drive.used("m", REQUESTS), await drive.used("m", TOKENS)) == (1, 300)
        assert (await drive.pool("m")).reservations == 0

    async def test_b4_a_call_that_was_not_made_gives_all_of_it_back(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*metered("ab"))
        first, second = await drive.take()
        await drive.settle(second, Split("x"))
        await drive.settle(first, Split("x"), UNMADE)
        assert (await drive.used("m", REQUESTS), await drive.used("m", TOKENS)) == (0, 0)

    async def test_b3_the_longest_prefix_that_fits_is_granted(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*metered("abcdefgh", 300), *metered("ij"))
        claims = await drive.claim()
        assert calls(claims.jobs) == ["abc"], "50 and three times 300 of 1 000"
        assert await drive.used("m", TOKENS) == 950
        assert claims.more is False
        drive.clock.advance(61)
        assert calls(await drive.take()) == ["def"]

    async def test_b3_one_pool_short_shortens_what_all_of_them_give(self, drive: Driver) -> None:
        await drive.store.declare_pools(
            {"m": POOL, "n": PoolSettings(limits=(Limit.tokens(250, per="minute"),), keyed=True)}
        )
        needs = (need("n", "k", tokens=100), need("m", tokens=10))
        await drive.add(*batch("abcd", EIGHT, needs=needs), *batch("e", EIGHT, needs=needs[::-1]))
        assert calls(await drive.take()) == ["ab"]
        assert (await drive.used("m", TOKENS), await drive.used("n", TOKENS, "k")) == (70, 200)

    async def test_b3_a_batch_that_cannot_start_is_not_asked_for_again(
        self, drive: Driver, asked: Counted
    ) -> None:
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(1, per="minute"),))})
        await drive.add(*batch("abcdefghijklmnop", EIGHT_OF_ANY, needs=(need("m"),)))
        assert calls(await drive.take()) == ["abcdefgh"]
        assert asked.since() <= 5
        for _ in range(5):
            claims = await drive.claim()
            assert (claims.jobs, claims.more, claims.lingers) == ([], False, False)
        assert asked.since() == 0
        drive.clock.advance(61)
        assert calls(await drive.take()) == ["ijklmnop"]

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            (QueueSettings(concurrency=5), ["abcd", "e"]),
            (QueueSettings(concurrency=3), ["abc"]),
            (QueueSettings(key_concurrency=3), ["abc"]),
        ],
    )
    async def test_j35_b3_every_job_of_a_call_counts(
        self, drive: Driver, settings: QueueSettings, expected: list[str]
    ) -> None:
        await drive.store.declare({"q": settings})
        await drive.add(*batch("abcdefgh", Batching(max_items=4), key="k"))
        claims = await drive.claim()
        assert (calls(claims.jobs), claims.more) == (expected, False)
        assert await drive.take() == []
        await drive.settle(claims.jobs[0])
        assert len(await drive.take()) == 1

    async def test_j35_b3_a_queues_room_is_shared_with_other_jobs(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(concurrency=3)})
        await drive.add(*batch("abc", Batching(max_items=2)), new("x"), new("y"))
        assert calls(await drive.take()) == ["ab", "x"]

    async def test_j35_b3_a_keys_room_is_shared_by_its_lanes(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(key_concurrency=3)})
        for task in ("one", "two"):
            await drive.add(*batch({"one": "ab", "two": "cd"}[task], QUICK, key="k", task=task))
        assert calls(await drive.take()) == ["ab", "c"]

    async def test_b5_a_call_is_one_of_the_limit(self, drive: Driver) -> None:
        await drive.add(*batch("abcdefgh", Batching(max_items=2)), *batch("i", key="k"), new("x", key="l"))
        claims = await drive.claim(limit=2)
        assert (calls(claims.jobs), claims.more) == (["ab", "x"], True)
        claims = await drive.claim(limit=3, shares=(("q", 1),))
        assert (calls(claims.jobs), claims.more) == (["cd", "ef", "gh"], False)

    async def test_b3_j36_a_call_ends_before_an_expired_job(self, drive: Driver) -> None:
        await drive.add(*batch("ab", QUICK), *batch("c", QUICK, expires=5), *batch("de", QUICK))
        drive.clock.advance(5)
        assert calls(await drive.take()) == ["ab", "de"]
        assert await drive.state("c") is State.CANCELLED

    async def test_b10_what_never_fits_alone_is_refused(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        (answer,) = await drive.add(*metered("a", 960))
        assert answer.verdict is Verdict.INVALID
        assert "m" in (answer.problem or "")
        assert "tokens" in (answer.problem or "")
        (answer,) = await drive.add(*metered("a", 940))
        assert answer.verdict is Verdict.ACCEPTED
        (answer,) = await drive.add(*batch("b", EIGHT))
        assert answer.problem, "the rule names a pool that the job does not need"

    async def test_b8_b10_by_its_id_a_job_pays_for_a_call(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*metered("ab"))
        assert calls((await drive.claim(named="a", shares=())).jobs) == ["a"]
        assert (await drive.used("m", REQUESTS), await drive.used("m", TOKENS)) == (1, 150)


EIGHT_OF_ANY = Batching(max_items=8)
QUICK = Batching(max_items=8)


class TestLostCalls:
    async def test_b4_p14_a_lost_call_counts_anew_once(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*metered("abcd"))
        held = await drive.take()
        drive.clock.advance(31)
        assert (await drive.store.reclaim()).ready == ("a", "b", "c", "d")
        assert await drive.used("m", TOKENS) == 900
        assert (await drive.pool("m")).reservations == 0
        for job in held:
            assert await drive.settle(job, spent=using("m", tokens=1)) is Answer.STALE
        assert await drive.used("m", TOKENS) == 900, "it ended with the reclaim"

    async def test_b7_suspects_go_in_halves(self, drive: Driver) -> None:
        rule = Batching(max_items=8, linger=10)
        await drive.add(*batch("abcdefgh", rule), *batch("i", rule))
        await drive.take()
        drive.clock.advance(31)
        await drive.store.reclaim()
        taken = await drive.take()
        assert calls(taken) == ["acde", "bfgh", "i"]
        assert [job.suspect for job in taken] == [True] * 8 + [False], "they run apart from other jobs"
        assert {job.crashes for job in taken} == {0, 1}

    async def test_b7_i8_a_call_of_suspects_that_dies_charges_nobody_until_one_is_alone(
        self, drive: Driver
    ) -> None:
        """Every worker that holds "a" dies. Only "a" is charged, when it is alone."""
        await drive.add(*batch("abcdefgh", Batching(max_items=8)))
        sizes: list[int] = []
        while (await drive.job("a")).crashes < 2:
            held = await drive.take()
            mine = next(job.call for job in held if job.id == "a")
            for job in held:
                if job.call != mine:
                    await drive.settle(job, Done(b"1"))
            sizes.append(sum(job.call == mine for job in held))
            drive.clock.advance(31)
            await drive.store.reclaim()
        assert sizes[0] == 8
        assert sizes[-1] == 1
        assert sizes == sorted(sizes, reverse=True)
        assert {(await drive.job(id_)).crashes for id_ in "bcdefgh"} == {1}

    async def test_b7_a_job_that_crashed_alone_is_a_call_of_its_own(self, drive: Driver) -> None:
        await drive.add(*batch("ab", Batching(max_items=8)))
        for job in await drive.take():
            await drive.settle(job, Crashed(OOPS))
        assert [(job.id, job.crashes) for job in await drive.take()] == [("a", 1), ("b", 1)]
        drive.clock.advance(31)
        await drive.store.reclaim()
        assert calls(await drive.take()) == ["a", "b"]

    async def test_b4_a_stale_first_job_books_the_call_once(self, drive: Driver) -> None:
        """P13, I6: it was cancelled while it ran."""
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*metered("abc"))
        first, *others = await drive.take()
        await drive.amend(Cancel(), "a")
        for job in others:
            assert await drive.settle(job) is Answer.OK
        assert await drive.used("m", TOKENS) == 350
        for _ in range(2):
            assert await drive.settle(first, Done(), using("m", tokens=80)) is Answer.STALE
            assert await drive.used("m", TOKENS) == 80

    async def test_b5_a_repeated_claim_without_its_first_job(self, drive: Driver) -> None:
        """The others are held still, and say whose call they are."""
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*metered("abc"))
        request = drive.request()
        await drive.store.claim(request)
        await drive.amend(Cancel(), "a")
        again = (await drive.store.claim(request)).jobs
        assert [(job.id, job.call) for job in again] == [("b", "a"), ("c", "a")]

    async def test_j52_a_call_whose_reply_was_lost_goes_back_uncounted(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*metered("abcd"))
        await drive.take()
        assert await drive.beat() == ((), ("a", "b", "c", "d"))
        assert await drive.used("m", TOKENS) == 900, "the units count anew: it may have been sent"
        drive.clock.advance(61)
        taken = await drive.take()
        assert calls(taken) == ["abcd"]
        assert ids(taken) == ["a", "b", "c", "d"]
        assert (await drive.job("a")).crashes == 0
