"""Conformance tests for checkpoints: the store records a paid step before its call, and stores its result
once."""

from __future__ import annotations

from tidemill.contract.store import Store
from tidemill.core.checkpoints import OnUnknown, StepAttempt, StepKey, StepStart, StepVerdict
from tidemill.core.claims import ClaimedJob
from tidemill.core.operator_changes import CancelJobs, DeleteJobs, RetryJobs
from tidemill.core.outcomes import FinalFailure, JobRelease, RetryLater, WriteAnswer
from tidemill.core.queues import DAY_SECONDS
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver

ASK_STEP, SPEAK_STEP = StepKey("ask", "1f"), StepKey("speak", "1f")
FRESH_START = StepStart(StepVerdict.FRESH)


def step_call_of(job: ClaimedJob, number: int = 1) -> StepAttempt:
    return StepAttempt(job.fence, job.claim, number)


class StepHolder:
    """A claimed job, with methods that call the store for one of its steps: `begin`, `keep` (store the
    result) and `forget` (the call was not paid for)."""

    def __init__(self, driver: StoreDriver, job: ClaimedJob) -> None:
        self._store, self.job = driver.store, job

    async def begin(
        self, step: StepKey = ASK_STEP, number: int = 1, on_unknown: OnUnknown = "retry"
    ) -> StepStart:
        return await self._store.begin_step(self.job.id, step_call_of(self.job, number), step, on_unknown)

    async def keep(
        self, result: bytes, step: StepKey = ASK_STEP, number: int = 1, *, paid: bool = True
    ) -> tuple[WriteAnswer, bytes]:
        return await self._store.keep_step(
            self.job.id, step_call_of(self.job, number), step, result, paid=paid
        )

    async def forget(self, step: StepKey = ASK_STEP, number: int = 1) -> None:
        await self._store.forget_step(self.job.id, step_call_of(self.job, number), step)


async def take_holder(driver: StoreDriver) -> StepHolder:
    await driver.add("a")
    return StepHolder(driver, await driver.take_one())


async def take_next_holder(driver: StoreDriver, before: StepHolder) -> StepHolder:
    """Fails the current attempt, claims the job again and returns a holder for the next attempt."""
    await driver.settle(before.job, RetryLater(0.0, SAMPLE_ERROR))
    return StepHolder(driver, await driver.take_one())


async def make_stale_holder(driver: StoreDriver) -> tuple[StepHolder, StepHolder]:
    """Returns two holders of the same job: the first lost it, because its lease ended; the second has it
    now."""
    before = await take_holder(driver)
    driver.clock.advance(31)
    await driver.store.reclaim()
    return before, StepHolder(driver, await driver.take_one("other"))


class TestBeginStep:
    async def test_k3_a_mark_then_a_result(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        assert await holder.begin() == FRESH_START
        (mark,) = await driver.store.checkpoints("a")
        assert (mark.step, mark.paid, mark.result, mark.kept) == (ASK_STEP, True, None, None)
        assert (mark.begun, mark.by, mark.unknown) == (driver.clock.wall(), step_call_of(holder.job), 0)
        driver.clock.advance(2)
        assert await holder.keep(b"7") == (WriteAnswer.OK, b"7")
        assert await holder.begin(number=2) == StepStart(StepVerdict.KEPT, b"7")
        (checkpoint,) = await driver.store.checkpoints("a")
        assert (checkpoint.begun, checkpoint.kept, checkpoint.result) == (
            mark.begun,
            driver.clock.wall(),
            b"7",
        )

    async def test_k3_another_claims_mark_is_unknown(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        holder = await take_next_holder(driver, holder)
        before = await driver.store.checkpoints("a")
        assert (await holder.begin(on_unknown="park")).verdict is StepVerdict.UNKNOWN
        assert await driver.store.checkpoints("a") == before
        assert await holder.begin() == StepStart(StepVerdict.FRESH, unknown=1)
        (repeated,) = await driver.store.checkpoints("a")
        assert (repeated.by, repeated.unknown) == (step_call_of(holder.job), 1)

    async def test_k3_an_earlier_call_of_the_same_claim_is_unknown_too(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        assert (await holder.begin(number=2, on_unknown="park")).verdict is StepVerdict.UNKNOWN
        assert (await holder.begin(number=2)).unknown == 1

    async def test_k3_the_same_call_after_a_lost_reply_is_no_second_one(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        for _ in range(3):
            assert await holder.begin(on_unknown="park") == FRESH_START
        holder = await take_next_holder(driver, holder)
        for _ in range(2):
            assert await holder.begin() == StepStart(StepVerdict.FRESH, unknown=1)

    async def test_k3_other_names_and_other_arguments_are_other_steps(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        steps = [ASK_STEP, SPEAK_STEP, StepKey("ask", "2e"), StepKey("", ""), StepKey("问", "1f")]
        for number, step in enumerate(steps, 1):
            assert await holder.begin(step, number, "park") == FRESH_START
            assert await holder.keep(b"%d" % number, step, number) == (WriteAnswer.OK, b"%d" % number)
        assert [await driver.store.kept_step("a", step) for step in steps] == [b"1", b"2", b"3", b"4", b"5"]

    async def test_k3_steps_belong_to_one_job(self, driver: StoreDriver) -> None:
        await driver.add("a", "b")
        first, second = [StepHolder(driver, job) for job in await driver.take()]
        await first.begin()
        await first.keep(b"1")
        assert await second.begin(on_unknown="park") == FRESH_START
        assert await driver.store.kept_step("b", ASK_STEP) is None

    async def test_k3_i6_a_stale_claim_begins_nothing(self, driver: StoreDriver) -> None:
        before, now = await make_stale_holder(driver)
        assert (await before.begin()).verdict is StepVerdict.STALE
        assert await driver.store.checkpoints("a") == []
        await now.begin()
        await now.keep(b"1")
        assert await before.begin() == StepStart(StepVerdict.STALE)
        await driver.settle(now.job)
        assert (await now.begin(SPEAK_STEP)).verdict is StepVerdict.STALE
        assert (
            await driver.store.begin_step("nobody", StepAttempt(1, 1, 1), ASK_STEP)
        ).verdict is StepVerdict.STALE

    async def test_k4_a_call_that_was_not_paid_for_leaves_no_mark(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        await holder.forget()
        assert await driver.store.checkpoints("a") == []
        holder = await take_next_holder(driver, holder)
        assert await holder.begin(on_unknown="park") == FRESH_START

    async def test_k4_another_calls_mark_and_a_result_stay(self, driver: StoreDriver) -> None:
        before, now = await make_stale_holder(driver)
        await now.begin(number=2)
        await before.forget(number=2)
        await now.forget(number=1)
        assert [mark.by for mark in await driver.store.checkpoints("a")] == [step_call_of(now.job, 2)]
        await now.keep(b"1", number=2)
        await now.forget(number=2)
        assert await driver.store.kept_step("a", ASK_STEP) == b"1"
        await driver.store.forget_step("nobody", StepAttempt(1, 1, 1), ASK_STEP)

    async def test_k4_an_earlier_call_stays_unknown(self, driver: StoreDriver) -> None:
        """A step made two calls, and the outcome of both is unknown. If the second call is reported as not
        paid for, the first call stays unknown."""
        holder = await take_holder(driver)
        await holder.begin()
        holder = await take_next_holder(driver, holder)
        await holder.begin()
        for _ in range(3):  # a repetition removes nothing more
            await holder.forget()
        (mark,) = await driver.store.checkpoints("a")
        assert mark.unknown == 0
        assert (await holder.begin(number=2, on_unknown="park")).verdict is StepVerdict.UNKNOWN
        assert (await holder.begin(number=2)).unknown == 1


class TestKeepStep:
    async def test_k5_i18_the_first_result_stands(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        assert await holder.keep(b"1") == (WriteAnswer.OK, b"1")
        assert await holder.keep(b"1") == (WriteAnswer.AGAIN, b"1")
        assert await holder.keep(b"2", number=2) == (WriteAnswer.AGAIN, b"1")
        assert await driver.store.kept_step("a", ASK_STEP) == b"1"

    async def test_k5_i6_a_stale_holders_paid_result_is_kept_and_used(self, driver: StoreDriver) -> None:
        before, now = await make_stale_holder(driver)
        assert await before.keep(b"1") == (WriteAnswer.OK, b"1")
        assert await now.begin() == StepStart(StepVerdict.KEPT, b"1")

    async def test_k5_two_paid_calls_agree_on_one_result(self, driver: StoreDriver) -> None:
        before, now = await make_stale_holder(driver)
        await now.begin()
        assert await before.keep(b"1") == (WriteAnswer.OK, b"1")
        assert await now.keep(b"2") == (WriteAnswer.AGAIN, b"1")

    async def test_k5_a_paid_result_is_kept_after_the_job_ended(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        await driver.amend(CancelJobs(), "a")
        assert await holder.keep(b"1") == (WriteAnswer.OK, b"1")
        await driver.amend(RetryJobs(), "a")
        assert await StepHolder(driver, await driver.take_one()).begin() == StepStart(StepVerdict.KEPT, b"1")

    async def test_k5_i6_an_unpaid_one_only_from_the_current_claim(self, driver: StoreDriver) -> None:
        before, now = await make_stale_holder(driver)
        assert await before.keep(b"1", paid=False) == (WriteAnswer.STALE, b"1")
        assert await driver.store.kept_step("a", ASK_STEP) is None
        assert await now.keep(b"2", paid=False) == (WriteAnswer.OK, b"2")
        assert await before.keep(b"1", paid=False) == (WriteAnswer.STALE, b"1")
        (checkpoint,) = await driver.store.checkpoints("a")
        assert (checkpoint.paid, checkpoint.result, checkpoint.begun) == (False, b"2", checkpoint.kept)

    async def test_k5_a_deleted_job_keeps_no_result(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await driver.settle(holder.job)
        await driver.amend(DeleteJobs(), "a")
        assert await holder.keep(b"1") == (WriteAnswer.GONE, b"1")
        assert await holder.keep(b"1", paid=False) == (WriteAnswer.GONE, b"1")
        assert await driver.store.kept_step("a", ASK_STEP) is None

    async def test_k5_a_result_may_be_any_json(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        for number, result in enumerate(
            (b"null", b'""', b'"\\u0000 \xe6\x85\xa2"', b"[" + b"1," * 9999 + b"1]")
        ):
            step = StepKey("ask", str(number))
            assert await holder.keep(result, step, number + 1) == (WriteAnswer.OK, result)
            assert await driver.store.kept_step("a", step) == result


class TestCheckpointLifetime:
    async def test_k1_another_handle_sees_checkpoints(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        await holder.keep(b"1")
        await holder.begin(SPEAK_STEP)
        other: Store = await driver.store.new_handle().open()
        assert await other.checkpoints("a") == await driver.store.checkpoints("a")
        await other.close()

    async def test_k2_checkpoints_survive_attempts_and_go_with_their_job(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        await holder.keep(b"1")
        holder = await take_next_holder(driver, holder)
        await driver.settle(holder.job, JobRelease())
        holder = StepHolder(driver, await driver.take_one())
        assert await holder.begin() == StepStart(StepVerdict.KEPT, b"1")
        await driver.settle(holder.job)
        assert len(await driver.store.checkpoints("a")) == 1
        driver.clock.advance(400 * DAY_SECONDS)
        await driver.store.prune()
        assert await driver.store.checkpoints("a") == []
        assert await driver.store.check() == ()

    async def test_k2_checkpoints_go_with_a_deleted_job(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        await holder.keep(b"1")
        await driver.settle(holder.job)
        await driver.amend(DeleteJobs(), "a")
        assert await driver.store.checkpoints("a") == []
        await driver.add("b")
        assert await driver.store.checkpoints("b") == []

    async def test_k2_a_manual_retry_keeps_results_and_drops_marks(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        await holder.keep(b"1")
        await holder.begin(SPEAK_STEP)
        await driver.settle(holder.job, FinalFailure(SAMPLE_ERROR))
        await driver.amend(RetryJobs(), "a")
        assert [mark.step for mark in await driver.store.checkpoints("a")] == [ASK_STEP]
        holder = StepHolder(driver, await driver.take_one())
        assert await holder.begin(on_unknown="park") == StepStart(StepVerdict.KEPT, b"1")
        assert await holder.begin(SPEAK_STEP, on_unknown="park") == FRESH_START

    async def test_k6_checkpoints_are_ordered_by_first_start(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        third = StepKey("third", "")
        for step in (SPEAK_STEP, ASK_STEP):
            await holder.begin(step)
        await holder.keep(b"3", third, paid=False)
        holder = await take_next_holder(driver, holder)
        await holder.begin(SPEAK_STEP)
        await holder.keep(b"1", SPEAK_STEP)
        assert [mark.step for mark in await driver.store.checkpoints("a")] == [SPEAK_STEP, ASK_STEP, third]
        assert await driver.store.checkpoints("nobody") == []

    async def test_k7_one_result_is_read_by_its_step(self, driver: StoreDriver) -> None:
        holder = await take_holder(driver)
        await holder.begin()
        assert await driver.store.kept_step("a", ASK_STEP) is None
        await holder.keep(b"1")
        assert await driver.store.kept_step("a", ASK_STEP) == b"1"
        assert await driver.store.kept_step("a", SPEAK_STEP) is None
        assert await driver.store.kept_step("nobody", ASK_STEP) is None
