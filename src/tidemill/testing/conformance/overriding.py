"""Overrides: a person's settings over the code's, for a while."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import asyncio

import pytest
from msgspec import UNSET

from tidemill.contract.queues import QueueInfo
from tidemill.core.job import Group
from tidemill.core.queues import Override, QueueChanges, QueueSettings, Retention, Verdict
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.driver import Driver, ids, new


async def info(drive: Driver) -> QueueInfo:
    (queue,) = await drive.store.queues()
    return queue


async def override(drive: Driver, seconds: float | None = None, **changes: object) -> None:
    until = UNSET if seconds is None else drive.clock.wall() + seconds
    await drive.store.override("q", QueueChanges(**changes), by="ann", until=until)  # type: ignore[arg-type]


async def verdicts(drive: Driver, *jobs: str) -> list[Verdict]:
    """Each inserted alone, by every way a store has for one job."""
    found = [(await drive.add(job))[0].verdict for job in jobs]
    if drive.store.blocking is not None:
        ((answer,),) = drive.store.blocking.insert([Group("q", (new(f"{jobs[-1]}-alone"),))])
        found.append(answer.verdict)
    return found


class TestOverrides:
    async def test_q2_settings_it_does_not_name_follow_the_code(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(weight=2, concurrency=5)})
        await override(drive, concurrency=1)
        await drive.store.declare({"q": QueueSettings(weight=3, concurrency=7)})
        assert (await info(drive)).settings == QueueSettings(weight=3, concurrency=1)

    async def test_q2_who_why_and_when_are_kept(self, drive: Driver) -> None:
        changes, now = QueueChanges(max_length=None, keep_done=Retention(count=1)), drive.clock.wall()
        await drive.store.override("q", changes, by="ann", reason="slow 磁盘", until=now + 60)
        expected = Override(changes=changes, by="ann", reason="slow 磁盘", since=now, until=now + 60)
        assert (await info(drive)).override == expected

    async def test_q2_the_second_joins_the_first_and_signs_for_both(self, drive: Driver) -> None:
        await override(drive, weight=4, concurrency=1, max_length=None)
        drive.clock.advance(5.0)
        await drive.store.override("q", QueueChanges(weight=5, crash_limit=9), by="bo", reason="why")
        assert (await info(drive)).override == Override(
            changes=QueueChanges(weight=5, concurrency=1, max_length=None, crash_limit=9),
            by="bo",
            reason="why",
            since=drive.clock.wall(),
        )

    async def test_q2_two_at_the_same_time_keep_both(self, drive: Driver) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(override(drive, weight=4))
            group.create_task(override(drive, concurrency=1))
            group.create_task(override(drive, max_length=9))
        assert (await info(drive)).settings == QueueSettings(weight=4, concurrency=1, max_length=9)

    async def test_q2_the_end_stays_unless_another_is_given(self, drive: Driver) -> None:
        now = drive.clock.wall()
        for until, expected in ((UNSET, None), (now + 60, now + 60), (UNSET, now + 60), (None, None)):
            await drive.store.override("q", QueueChanges(weight=2), by="ann", until=until)
            found = (await info(drive)).override
            assert found is not None
            assert found.until == expected

    async def test_q2_nothing_is_joined_to_one_that_has_ended(self, drive: Driver) -> None:
        await override(drive, 10.0, weight=4)
        drive.clock.advance(10.0)
        await drive.store.override("q", QueueChanges(concurrency=1), by="ann")
        found = (await info(drive)).override
        assert found == Override(changes=QueueChanges(concurrency=1), by="ann", since=drive.clock.wall())

    async def test_q6_settings_are_taken_away_by_name(self, drive: Driver) -> None:
        now = drive.clock.wall()
        changes = QueueChanges(weight=4, concurrency=1, max_length=None)
        await drive.store.override("q", changes, by="ann", reason="why", until=now + 60)
        drive.clock.advance(5.0)
        await drive.store.clear_override("q", ("weight", "crash_limit"))
        left = QueueChanges(concurrency=1, max_length=None)
        expected = Override(changes=left, by="ann", reason="why", since=now, until=now + 60)
        assert (await info(drive)).override == expected
        await drive.store.clear_override("q", ("concurrency", "max_length"))
        assert (await info(drive)).override is None

    async def test_q6_without_names_all_of_it_goes(self, drive: Driver) -> None:
        await override(drive, weight=4, concurrency=1)
        await drive.store.clear_override("q")
        assert ((await info(drive)).override, (await info(drive)).settings) == (None, QueueSettings())
        await drive.store.clear_override("q")
        with pytest.raises(ConfigurationError):
            await drive.store.clear_override("")

    async def test_q2_j12_a_limit_named_as_none_is_lifted(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(max_length=1)})
        await override(drive, max_length=None)
        assert set(await verdicts(drive, "a", "b")) == {Verdict.ACCEPTED}
        await drive.store.clear_override("q", ["max_length"])
        assert set(await verdicts(drive, "c", "d")) == {Verdict.FULL}

    async def test_q2_j12_a_limit_that_is_not_named_holds(self, drive: Driver) -> None:
        await drive.add("a")
        await override(drive, weight=2)
        assert set(await verdicts(drive, "b")) == {Verdict.ACCEPTED}
        await override(drive, max_length=1)
        assert set(await verdicts(drive, "c")) == {Verdict.FULL}

    @pytest.mark.parametrize(
        ("changes", "by", "until"),
        [
            (QueueChanges(weight=0), "ann", None),
            (QueueChanges(concurrency=0), "ann", None),
            (QueueChanges(), "", None),
            (QueueChanges(), "a\0nn", None),
            (QueueChanges(), "ann", float("inf")),
        ],
    )
    async def test_q2_one_that_cannot_work_is_refused(
        self, drive: Driver, changes: QueueChanges, by: str, until: float | None
    ) -> None:
        await override(drive, weight=7)
        with pytest.raises(ConfigurationError):
            await drive.store.override("q", changes, by=by, until=until)
        with pytest.raises(ConfigurationError):
            await drive.store.override("", QueueChanges(), by="ann")
        assert (await info(drive)).settings.weight == 7


class TestOverrideEnds:
    async def test_q2_it_is_not_there_any_more(self, drive: Driver) -> None:
        await override(drive, 10.0, weight=4)
        drive.clock.advance(9.0)
        assert (await info(drive)).settings.weight == 4
        drive.clock.advance(1.0)
        assert ((await info(drive)).override, (await info(drive)).settings) == (None, QueueSettings())

    async def test_q2_one_that_has_ended_before_it_began_changes_nothing(self, drive: Driver) -> None:
        await override(drive, -1.0, max_length=1)
        assert (await info(drive)).override is None
        assert set(await verdicts(drive, "a", "b")) == {Verdict.ACCEPTED}

    async def test_q2_j12_its_length_limit_ends(self, drive: Driver) -> None:
        await override(drive, 10.0, max_length=1)
        await drive.add("a")
        assert set(await verdicts(drive, "b")) == {Verdict.FULL}
        drive.clock.advance(10.0)
        assert set(await verdicts(drive, "c")) == {Verdict.ACCEPTED}

    async def test_q2_j12_the_declared_length_limit_holds_again(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(max_length=1)})
        await override(drive, 10.0, max_length=None)
        assert set(await verdicts(drive, "a", "b")) == {Verdict.ACCEPTED}
        drive.clock.advance(10.0)
        assert set(await verdicts(drive, "c")) == {Verdict.FULL}

    @pytest.mark.parametrize("limit", ["concurrency", "key_concurrency"])
    async def test_q2_j35_j38_what_its_limit_kept_back_starts(self, drive: Driver, limit: str) -> None:
        """Without anybody telling the store: no ring, no change, only a claim at the time it was told."""
        await override(drive, 10.0, **{limit: 1})
        await drive.add(*[new(name, key="k") for name in "abc"])
        assert ids(await drive.take()) == ["a"]
        kept_back = await drive.claim()
        assert (kept_back.jobs, kept_back.more, kept_back.next_due) == ([], False, 10.0)
        drive.clock.advance(10.0)
        after = await drive.claim()
        assert (ids(after.jobs), after.next_due) == (["b", "c"], None)

    async def test_q2_j35_a_run_that_ends_after_it_keeps_nobody_back(self, drive: Driver) -> None:
        await override(drive, 10.0, key_concurrency=1)
        await drive.add(*[new(name, key="k") for name in "abc"])
        (job,) = await drive.take()
        assert await drive.take() == []
        drive.clock.advance(10.0)
        await drive.settle(job)
        assert ids(await drive.take()) == ["b", "c"]

    async def test_q2_j35_the_declared_limit_holds_again(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(key_concurrency=1)})
        await override(drive, 10.0, key_concurrency=3)
        await drive.add(*[new(name, key="k") for name in "abcd"])
        assert len(await drive.take(limit=2)) == 2
        drive.clock.advance(10.0)
        assert await drive.take() == []

    async def test_q2_j37_claims_by_ids_see_the_end_too(self, drive: Driver) -> None:
        await override(drive, 10.0, concurrency=1)
        await drive.add(*"ab")
        assert (await drive.claim(named=("a", "b"))).blocked == ("b",)
        drive.clock.advance(10.0)
        assert ids(await drive.take(named=("b",))) == ["b"]

    async def test_q2_i26_it_does_not_come_back_with_the_clock(self, drive: Driver) -> None:
        await override(drive, 10.0, concurrency=1)
        await drive.add(*"abc")
        drive.clock.advance(10.0)
        assert ids(await drive.take(limit=1)) == ["a"]
        drive.clock.step_wall(-3600.0)
        assert (await info(drive)).override is None
        assert ids(await drive.take()) == ["b", "c"]

    async def test_j38_a_paused_queue_tells_the_end_of_its_pause(self, drive: Driver) -> None:
        await override(drive, 10.0, concurrency=1)
        await drive.store.pause("q", until=drive.clock.wall() + 20)
        await drive.add("a")
        assert (await drive.claim()).next_due == 20.0
        await drive.store.resume("q")
        assert (await drive.claim()).next_due == 10.0

    async def test_j80_its_retention_ends(self, drive: Driver) -> None:
        await override(drive, 10.0, keep_done=Retention(count=0))
        await drive.ended("a")
        drive.clock.advance(10.0)
        assert (await drive.store.prune()).pruned == 0
