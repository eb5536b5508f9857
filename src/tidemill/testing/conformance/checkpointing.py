"""Steps: marked before they are paid for, their results kept once, for as long as their job lives."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

from tidemill.contract.store import Store
from tidemill.core.changes import Cancel, Delete, RetryNow
from tidemill.core.checkpoints import Beginning, Begun, OnUnknown, Step, Try
from tidemill.core.claims import Claimed
from tidemill.core.outcomes import Answer, Fail, Release, Retrying
from tidemill.core.queues import DAY
from tidemill.testing.conformance.driver import OOPS, Driver

ASK, SPEAK = Step("ask", "1f"), Step("speak", "1f")
FRESH = Beginning(Begun.FRESH)


def by(job: Claimed, number: int = 1) -> Try:
    return Try(job.fence, job.claim, number)


class Hand:
    """A claim, and what its holder says of steps."""

    def __init__(self, drive: Driver, job: Claimed) -> None:
        self._store, self.job = drive.store, job

    async def begin(self, step: Step = ASK, number: int = 1, on_unknown: OnUnknown = "retry") -> Beginning:
        return await self._store.begin_step(self.job.id, by(self.job, number), step, on_unknown)

    async def keep(
        self, result: bytes, step: Step = ASK, number: int = 1, *, paid: bool = True
    ) -> tuple[Answer, bytes]:
        return await self._store.keep_step(self.job.id, by(self.job, number), step, result, paid=paid)

    async def forget(self, step: Step = ASK, number: int = 1) -> None:
        await self._store.forget_step(self.job.id, by(self.job, number), step)


async def taken(drive: Driver) -> Hand:
    await drive.add("a")
    return Hand(drive, await drive.take_one())


async def next_hand(drive: Driver, before: Hand) -> Hand:
    """The job fails, and another attempt has it."""
    await drive.settle(before.job, Retrying(0.0, OOPS))
    return Hand(drive, await drive.take_one())


async def stale_hand(drive: Driver) -> tuple[Hand, Hand]:
    """The first holder's lease is over, and another has the job."""
    before = await taken(drive)
    drive.clock.advance(31)
    await drive.store.reclaim()
    return before, Hand(drive, await drive.take_one("other"))


class TestBegun:
    async def test_k3_a_mark_then_a_result(self, drive: Driver) -> None:
        hand = await taken(drive)
        assert await hand.begin() == FRESH
        (mark,) = await drive.store.checkpoints("a")
        assert (mark.step, mark.paid, mark.result, mark.kept) == (ASK, True, None, None)
        assert (mark.begun, mark.by, mark.unknown) == (drive.clock.wall(), by(hand.job), 0)
        drive.clock.advance(2)
        assert await hand.keep(b"7") == (Answer.OK, b"7")
        assert await hand.begin(number=2) == Beginning(Begun.KEPT, b"7")
        (kept,) = await drive.store.checkpoints("a")
        assert (kept.begun, kept.kept, kept.result) == (mark.begun, drive.clock.wall(), b"7")

    async def test_k3_another_claims_mark_is_unknown(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        hand = await next_hand(drive, hand)
        before = await drive.store.checkpoints("a")
        assert (await hand.begin(on_unknown="park")).verdict is Begun.UNKNOWN
        assert await drive.store.checkpoints("a") == before
        assert await hand.begin() == Beginning(Begun.FRESH, unknown=1)
        (again,) = await drive.store.checkpoints("a")
        assert (again.by, again.unknown) == (by(hand.job), 1)

    async def test_k3_an_earlier_call_of_the_same_claim_is_unknown_too(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        assert (await hand.begin(number=2, on_unknown="park")).verdict is Begun.UNKNOWN
        assert (await hand.begin(number=2)).unknown == 1

    async def test_k3_the_same_call_after_a_lost_reply_is_no_second_one(self, drive: Driver) -> None:
        hand = await taken(drive)
        for _ in range(3):
            assert await hand.begin(on_unknown="park") == FRESH
        hand = await next_hand(drive, hand)
        for _ in range(2):
            assert await hand.begin() == Beginning(Begun.FRESH, unknown=1)

    async def test_k3_other_names_and_other_arguments_are_other_steps(self, drive: Driver) -> None:
        hand = await taken(drive)
        steps = [ASK, SPEAK, Step("ask", "2e"), Step("", ""), Step("问", "1f")]
        for number, step in enumerate(steps, 1):
            assert await hand.begin(step, number, "park") == FRESH
            assert await hand.keep(b"%d" % number, step, number) == (Answer.OK, b"%d" % number)
        assert [await drive.store.kept_step("a", step) for step in steps] == [b"1", b"2", b"3", b"4", b"5"]

    async def test_k3_another_jobs_steps_are_its_own(self, drive: Driver) -> None:
        await drive.add("a", "b")
        first, second = [Hand(drive, job) for job in await drive.take()]
        await first.begin()
        await first.keep(b"1")
        assert await second.begin(on_unknown="park") == FRESH
        assert await drive.store.kept_step("b", ASK) is None

    async def test_k3_i6_a_stale_claim_begins_nothing(self, drive: Driver) -> None:
        before, now = await stale_hand(drive)
        assert (await before.begin()).verdict is Begun.STALE
        assert await drive.store.checkpoints("a") == []
        await now.begin()
        await now.keep(b"1")
        assert await before.begin() == Beginning(Begun.STALE)
        await drive.settle(now.job)
        assert (await now.begin(SPEAK)).verdict is Begun.STALE
        assert (await drive.store.begin_step("nobody", Try(1, 1, 1), ASK)).verdict is Begun.STALE

    async def test_k4_a_call_that_was_not_paid_for_leaves_no_mark(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        await hand.forget()
        assert await drive.store.checkpoints("a") == []
        hand = await next_hand(drive, hand)
        assert await hand.begin(on_unknown="park") == FRESH

    async def test_k4_another_calls_mark_and_a_result_stay(self, drive: Driver) -> None:
        before, now = await stale_hand(drive)
        await now.begin(number=2)
        await before.forget(number=2)
        await now.forget(number=1)
        assert [mark.by for mark in await drive.store.checkpoints("a")] == [by(now.job, 2)]
        await now.keep(b"1", number=2)
        await now.forget(number=2)
        assert await drive.store.kept_step("a", ASK) == b"1"
        await drive.store.forget_step("nobody", Try(1, 1, 1), ASK)

    async def test_k4_an_earlier_call_stays_unknown(self, drive: Driver) -> None:
        """The second call was refused: that does not say what became of the first."""
        hand = await taken(drive)
        await hand.begin()
        hand = await next_hand(drive, hand)
        await hand.begin()
        for _ in range(3):  # repeated, it takes nothing more away
            await hand.forget()
        (mark,) = await drive.store.checkpoints("a")
        assert mark.unknown == 0
        assert (await hand.begin(number=2, on_unknown="park")).verdict is Begun.UNKNOWN
        assert (await hand.begin(number=2)).unknown == 1


class TestKept:
    async def test_k5_i18_the_first_result_stands(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        assert await hand.keep(b"1") == (Answer.OK, b"1")
        assert await hand.keep(b"1") == (Answer.AGAIN, b"1")
        assert await hand.keep(b"2", number=2) == (Answer.AGAIN, b"1")
        assert await drive.store.kept_step("a", ASK) == b"1"

    async def test_k5_i6_a_stale_holders_paid_result_is_kept_and_used(self, drive: Driver) -> None:
        before, now = await stale_hand(drive)
        assert await before.keep(b"1") == (Answer.OK, b"1")
        assert await now.begin() == Beginning(Begun.KEPT, b"1")

    async def test_k5_two_who_paid_agree_on_one_result(self, drive: Driver) -> None:
        before, now = await stale_hand(drive)
        await now.begin()
        assert await before.keep(b"1") == (Answer.OK, b"1")
        assert await now.keep(b"2") == (Answer.AGAIN, b"1")

    async def test_k5_a_paid_result_is_kept_after_the_job_ended(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        await drive.amend(Cancel(), "a")
        assert await hand.keep(b"1") == (Answer.OK, b"1")
        await drive.amend(RetryNow(), "a")
        assert await Hand(drive, await drive.take_one()).begin() == Beginning(Begun.KEPT, b"1")

    async def test_k5_i6_an_unpaid_one_only_from_the_current_claim(self, drive: Driver) -> None:
        before, now = await stale_hand(drive)
        assert await before.keep(b"1", paid=False) == (Answer.STALE, b"1")
        assert await drive.store.kept_step("a", ASK) is None
        assert await now.keep(b"2", paid=False) == (Answer.OK, b"2")
        assert await before.keep(b"1", paid=False) == (Answer.STALE, b"1")
        (kept,) = await drive.store.checkpoints("a")
        assert (kept.paid, kept.result, kept.begun) == (False, b"2", kept.kept)

    async def test_k5_gone(self, drive: Driver) -> None:
        hand = await taken(drive)
        await drive.settle(hand.job)
        await drive.amend(Delete(), "a")
        assert await hand.keep(b"1") == (Answer.GONE, b"1")
        assert await hand.keep(b"1", paid=False) == (Answer.GONE, b"1")
        assert await drive.store.kept_step("a", ASK) is None

    async def test_k5_any_json(self, drive: Driver) -> None:
        hand = await taken(drive)
        for number, result in enumerate(
            (b"null", b'""', b'"\\u0000 \xe6\x85\xa2"', b"[" + b"1," * 9999 + b"1]")
        ):
            step = Step("ask", str(number))
            assert await hand.keep(result, step, number + 1) == (Answer.OK, result)
            assert await drive.store.kept_step("a", step) == result


class TestSteps:
    async def test_k1_another_handle_sees_them(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        await hand.keep(b"1")
        await hand.begin(SPEAK)
        other: Store = await drive.store.another().open()
        assert await other.checkpoints("a") == await drive.store.checkpoints("a")
        await other.close()

    async def test_k2_they_stay_through_attempts_and_go_with_their_job(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        await hand.keep(b"1")
        hand = await next_hand(drive, hand)
        await drive.settle(hand.job, Release())
        hand = Hand(drive, await drive.take_one())
        assert await hand.begin() == Beginning(Begun.KEPT, b"1")
        await drive.settle(hand.job)
        assert len(await drive.store.checkpoints("a")) == 1
        drive.clock.advance(400 * DAY)
        await drive.store.prune()
        assert await drive.store.checkpoints("a") == []
        assert await drive.store.check() == ()

    async def test_k2_a_deleted_job_takes_them_along(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        await hand.keep(b"1")
        await drive.settle(hand.job)
        await drive.amend(Delete(), "a")
        assert await drive.store.checkpoints("a") == []
        await drive.add("b")
        assert await drive.store.checkpoints("b") == []

    async def test_k2_a_retry_by_hand_keeps_results_and_forgets_what_was_begun(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        await hand.keep(b"1")
        await hand.begin(SPEAK)
        await drive.settle(hand.job, Fail(OOPS))
        await drive.amend(RetryNow(), "a")
        assert [mark.step for mark in await drive.store.checkpoints("a")] == [ASK]
        hand = Hand(drive, await drive.take_one())
        assert await hand.begin(on_unknown="park") == Beginning(Begun.KEPT, b"1")
        assert await hand.begin(SPEAK, on_unknown="park") == FRESH

    async def test_k6_in_the_order_they_were_first_begun(self, drive: Driver) -> None:
        hand = await taken(drive)
        third = Step("third", "")
        for step in (SPEAK, ASK):
            await hand.begin(step)
        await hand.keep(b"3", third, paid=False)
        hand = await next_hand(drive, hand)
        await hand.begin(SPEAK)
        await hand.keep(b"1", SPEAK)
        assert [mark.step for mark in await drive.store.checkpoints("a")] == [SPEAK, ASK, third]
        assert await drive.store.checkpoints("nobody") == []

    async def test_k7_one_result(self, drive: Driver) -> None:
        hand = await taken(drive)
        await hand.begin()
        assert await drive.store.kept_step("a", ASK) is None
        await hand.keep(b"1")
        assert await drive.store.kept_step("a", ASK) == b"1"
        assert await drive.store.kept_step("a", SPEAK) is None
        assert await drive.store.kept_step("nobody", ASK) is None
