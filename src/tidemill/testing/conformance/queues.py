"""Conformance tests for queue settings, pauses and overrides."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET

from tidemill.contract.queues import QueueInfo
from tidemill.core.jobs import JobGroup
from tidemill.core.overrides import Override
from tidemill.core.queues import (
    DAY_SECONDS,
    InsertVerdict,
    QueueChanges,
    QueueSettings,
    Retention,
    with_paid_retention,
)
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.fixtures import StoreDriver, ids, new_job


class TestQueueSettings:
    async def test_q1_q5_declared_or_first_seen_by_name(self, driver: StoreDriver) -> None:
        await driver.add("a", queue="seen")
        await driver.store.declare({"b": QueueSettings(weight=3), "a": QueueSettings()})
        queues = await driver.store.queues()
        assert [queue.name for queue in queues] == ["a", "b", "seen"]
        assert queues[1].settings == QueueSettings(weight=3)
        assert queues[2].settings == QueueSettings()

    async def test_q1_q2_a_deploy_erases_no_override_and_no_pause(self, driver: StoreDriver) -> None:
        changes, now = QueueChanges(concurrency=1), driver.clock.wall()
        await driver.store.declare({"q": QueueSettings(concurrency=5, weight=2)})
        await driver.store.override("q", changes, by="ann", reason="slow disk", until=now + 60)
        await driver.store.pause("q", reason="why")
        await driver.store.declare({"q": QueueSettings(concurrency=9, weight=3)})
        (queue,) = await driver.store.queues()
        assert queue.override == Override(
            changes=changes, by="ann", reason="slow disk", since=now, until=now + 60
        )
        assert queue.settings == QueueSettings(concurrency=1, weight=3)
        assert queue.declared == QueueSettings(concurrency=9, weight=3)
        assert queue.pause is not None
        assert (queue.pause.reason, queue.pause.since) == ("why", driver.clock.wall())
        await driver.store.clear_override("q")
        await driver.store.resume("q")
        (queue,) = await driver.store.queues()
        assert (queue.settings.concurrency, queue.override, queue.pause) == (9, None, None)

    async def test_q1_a_shorter_default_keeps_the_retention_of_paid_tasks(self, driver: StoreDriver) -> None:
        """A queue with a paid task keeps ended jobs longer by default. If a program without this task
        declares the queue, the longer default stays."""
        paid = with_paid_retention(QueueSettings())
        for settings in (QueueSettings(), paid, QueueSettings(weight=2)):
            await driver.store.declare({"q": settings})
        (queue,) = await driver.store.queues()
        assert queue.declared == with_paid_retention(QueueSettings(weight=2))
        chosen = QueueSettings(keep_done=Retention(age=DAY_SECONDS, count=100_000))
        await driver.store.declare({"q": chosen})
        (queue,) = await driver.store.queues()
        assert queue.declared.keep_done == chosen.keep_done
        assert queue.declared.keep_failed == paid.keep_failed

    @pytest.mark.parametrize(
        "retention",
        [
            Retention(age=-5.0),
            Retention(age=float("nan")),
            Retention(age=float("inf")),
            Retention(count=-3),
        ],
    )
    async def test_q1_q2_a_negative_retention_is_refused(
        self, driver: StoreDriver, retention: Retention
    ) -> None:
        """An invalid retention is refused, in a declaration and in an override. A negative retention would
        delete all ended jobs at the next prune."""
        await driver.ended("a")
        for field in ("keep_done", "keep_failed", "keep_cancelled"):
            options: dict[str, Any] = {field: retention}
            with pytest.raises(ConfigurationError, match=field):
                await driver.store.declare({"q": QueueSettings(**options)})
            with pytest.raises(ConfigurationError, match=field):
                await driver.store.override("q", QueueChanges(**options), by="ann")
        assert (await driver.store.prune()).pruned == 0
        (queue,) = await driver.store.queues()
        assert (queue.declared, queue.override) == (QueueSettings(), None)

    @pytest.mark.parametrize(
        ("until", "reason"),
        [(float("nan"), None), (float("inf"), None), (None, "a\0b"), (None, "\ud800")],
    )
    async def test_q3_an_invalid_pause_is_refused(
        self, driver: StoreDriver, until: float | None, reason: str | None
    ) -> None:
        await driver.store.declare({"q": QueueSettings()})
        with pytest.raises(ConfigurationError):
            await driver.store.pause("q", until=until, reason=reason)
        with pytest.raises(ConfigurationError):
            await driver.store.pause("never", until=until, reason=reason)
        (queue,) = await driver.store.queues()
        assert (queue.name, queue.pause) == ("q", None)

    async def test_q2_an_override_holds_from_the_next_verb_on(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        await driver.store.override("q", QueueChanges(concurrency=1, max_length=2), by="ann")
        assert ids(await driver.take()) == ["a"]
        assert (await driver.add("d"))[0].verdict is InsertVerdict.FULL
        await driver.store.clear_override("q")
        assert ids(await driver.take()) == ["b", "c"]

    async def test_q2_a_raised_key_limit_opens_its_lanes(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(key_concurrency=1)})
        await driver.add(*[new_job(name, key="k") for name in "abc"])
        assert ids(await driver.take()) == ["a"]
        assert await driver.take() == []
        await driver.store.override("q", QueueChanges(key_concurrency=2), by="ann")
        assert ids(await driver.take()) == ["b"]
        await driver.store.clear_override("q")
        assert await driver.take() == []


async def load_queue(driver: StoreDriver) -> QueueInfo:
    (queue,) = await driver.store.queues()
    return queue


async def set_override(driver: StoreDriver, seconds: float | None = None, **changes: object) -> None:
    until = UNSET if seconds is None else driver.clock.wall() + seconds
    await driver.store.override("q", QueueChanges(**changes), by="ann", until=until)  # type: ignore[arg-type]


async def insert_verdicts(driver: StoreDriver, *jobs: str) -> list[InsertVerdict]:
    """Inserts each job in a separate call and returns the store's answers. If the store has blocking methods,
    inserts one more job with them and adds that answer."""
    found = [(await driver.add(job))[0].verdict for job in jobs]
    if driver.store.blocking is not None:
        ((answer,),) = driver.store.blocking.insert([JobGroup("q", (new_job(f"{jobs[-1]}-alone"),))])
        found.append(answer.verdict)
    return found


class TestQueueOverrides:
    async def test_q2_settings_without_an_override_follow_the_declaration(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(weight=2, concurrency=5)})
        await set_override(driver, concurrency=1)
        await driver.store.declare({"q": QueueSettings(weight=3, concurrency=7)})
        assert (await load_queue(driver)).settings == QueueSettings(weight=3, concurrency=1)

    async def test_q2_author_reason_and_time_are_stored(self, driver: StoreDriver) -> None:
        changes, now = QueueChanges(max_length=None, keep_done=Retention(count=1)), driver.clock.wall()
        await driver.store.override("q", changes, by="ann", reason="slow 磁盘", until=now + 60)
        expected = Override(changes=changes, by="ann", reason="slow 磁盘", since=now, until=now + 60)
        assert (await load_queue(driver)).override == expected

    async def test_q2_a_second_override_merges_and_becomes_the_author(self, driver: StoreDriver) -> None:
        await set_override(driver, weight=4, concurrency=1, max_length=None)
        driver.clock.advance(5.0)
        await driver.store.override("q", QueueChanges(weight=5, crash_limit=9), by="bo", reason="why")
        assert (await load_queue(driver)).override == Override(
            changes=QueueChanges(weight=5, concurrency=1, max_length=None, crash_limit=9),
            by="bo",
            reason="why",
            since=driver.clock.wall(),
        )

    async def test_q2_two_concurrent_overrides_are_merged(self, driver: StoreDriver) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(set_override(driver, weight=4))
            group.create_task(set_override(driver, concurrency=1))
            group.create_task(set_override(driver, max_length=9))
        assert (await load_queue(driver)).settings == QueueSettings(weight=4, concurrency=1, max_length=9)

    async def test_q2_the_end_stays_unless_another_is_given(self, driver: StoreDriver) -> None:
        now = driver.clock.wall()
        for until, expected in ((UNSET, None), (now + 60, now + 60), (UNSET, now + 60), (None, None)):
            await driver.store.override("q", QueueChanges(weight=2), by="ann", until=until)
            found = (await load_queue(driver)).override
            assert found is not None
            assert found.until == expected

    async def test_q2_an_ended_override_is_not_merged(self, driver: StoreDriver) -> None:
        await set_override(driver, 10.0, weight=4)
        driver.clock.advance(10.0)
        await driver.store.override("q", QueueChanges(concurrency=1), by="ann")
        found = (await load_queue(driver)).override
        assert found == Override(changes=QueueChanges(concurrency=1), by="ann", since=driver.clock.wall())

    async def test_q6_overrides_are_removed_by_name(self, driver: StoreDriver) -> None:
        now = driver.clock.wall()
        changes = QueueChanges(weight=4, concurrency=1, max_length=None)
        await driver.store.override("q", changes, by="ann", reason="why", until=now + 60)
        driver.clock.advance(5.0)
        await driver.store.clear_override("q", ("weight", "crash_limit"))
        left = QueueChanges(concurrency=1, max_length=None)
        expected = Override(changes=left, by="ann", reason="why", since=now, until=now + 60)
        assert (await load_queue(driver)).override == expected
        await driver.store.clear_override("q", ("concurrency", "max_length"))
        assert (await load_queue(driver)).override is None

    async def test_q6_without_names_all_overrides_are_removed(self, driver: StoreDriver) -> None:
        await set_override(driver, weight=4, concurrency=1)
        await driver.store.clear_override("q")
        assert ((await load_queue(driver)).override, (await load_queue(driver)).settings) == (
            None,
            QueueSettings(),
        )
        await driver.store.clear_override("q")
        with pytest.raises(ConfigurationError):
            await driver.store.clear_override("")

    async def test_q2_j12_an_override_of_none_lifts_a_limit(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(max_length=1)})
        await set_override(driver, max_length=None)
        assert set(await insert_verdicts(driver, "a", "b")) == {InsertVerdict.ACCEPTED}
        await driver.store.clear_override("q", ["max_length"])
        assert set(await insert_verdicts(driver, "c", "d")) == {InsertVerdict.FULL}

    async def test_q2_j12_a_limit_without_an_override_holds(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await set_override(driver, weight=2)
        assert set(await insert_verdicts(driver, "b")) == {InsertVerdict.ACCEPTED}
        await set_override(driver, max_length=1)
        assert set(await insert_verdicts(driver, "c")) == {InsertVerdict.FULL}

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
    async def test_q2_an_invalid_override_is_refused(
        self, driver: StoreDriver, changes: QueueChanges, by: str, until: float | None
    ) -> None:
        await set_override(driver, weight=7)
        with pytest.raises(ConfigurationError):
            await driver.store.override("q", changes, by=by, until=until)
        with pytest.raises(ConfigurationError):
            await driver.store.override("", QueueChanges(), by="ann")
        assert (await load_queue(driver)).settings.weight == 7


class TestOverrideExpiry:
    async def test_q2_an_ended_override_is_not_shown(self, driver: StoreDriver) -> None:
        await set_override(driver, 10.0, weight=4)
        driver.clock.advance(9.0)
        assert (await load_queue(driver)).settings.weight == 4
        driver.clock.advance(1.0)
        assert ((await load_queue(driver)).override, (await load_queue(driver)).settings) == (
            None,
            QueueSettings(),
        )

    async def test_q2_an_override_that_already_ended_changes_nothing(self, driver: StoreDriver) -> None:
        await set_override(driver, -1.0, max_length=1)
        assert (await load_queue(driver)).override is None
        assert set(await insert_verdicts(driver, "a", "b")) == {InsertVerdict.ACCEPTED}

    async def test_q2_j12_an_overridden_length_limit_ends(self, driver: StoreDriver) -> None:
        await set_override(driver, 10.0, max_length=1)
        await driver.add("a")
        assert set(await insert_verdicts(driver, "b")) == {InsertVerdict.FULL}
        driver.clock.advance(10.0)
        assert set(await insert_verdicts(driver, "c")) == {InsertVerdict.ACCEPTED}

    async def test_q2_j12_the_declared_length_limit_holds_again(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(max_length=1)})
        await set_override(driver, 10.0, max_length=None)
        assert set(await insert_verdicts(driver, "a", "b")) == {InsertVerdict.ACCEPTED}
        driver.clock.advance(10.0)
        assert set(await insert_verdicts(driver, "c")) == {InsertVerdict.FULL}

    @pytest.mark.parametrize("limit", ["concurrency", "key_concurrency"])
    async def test_q2_j35_j38_jobs_start_when_the_overridden_limit_ends(
        self, driver: StoreDriver, limit: str
    ) -> None:
        """If an override's limit blocks jobs, a claim returns the time until the override ends. A claim after
        that time starts the jobs, without a wake-up."""
        await set_override(driver, 10.0, **{limit: 1})
        await driver.add(*[new_job(name, key="k") for name in "abc"])
        assert ids(await driver.take()) == ["a"]
        kept_back = await driver.claim()
        assert (kept_back.jobs, kept_back.more, kept_back.next_due) == ([], False, 10.0)
        driver.clock.advance(10.0)
        after = await driver.claim()
        assert (ids(after.jobs), after.next_due) == (["b", "c"], None)

    async def test_q2_j35_a_run_that_ends_after_the_override_blocks_no_job(self, driver: StoreDriver) -> None:
        await set_override(driver, 10.0, key_concurrency=1)
        await driver.add(*[new_job(name, key="k") for name in "abc"])
        (job,) = await driver.take()
        assert await driver.take() == []
        driver.clock.advance(10.0)
        await driver.settle(job)
        assert ids(await driver.take()) == ["b", "c"]

    async def test_q2_j35_the_declared_limit_holds_again(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(key_concurrency=1)})
        await set_override(driver, 10.0, key_concurrency=3)
        await driver.add(*[new_job(name, key="k") for name in "abcd"])
        assert len(await driver.take(limit=2)) == 2
        driver.clock.advance(10.0)
        assert await driver.take() == []

    async def test_q2_j37_claims_by_ids_see_the_end_too(self, driver: StoreDriver) -> None:
        await set_override(driver, 10.0, concurrency=1)
        await driver.add(*"ab")
        assert (await driver.claim(named=("a", "b"))).blocked == ("b",)
        driver.clock.advance(10.0)
        assert ids(await driver.take(named=("b",))) == ["b"]

    async def test_q2_i26_an_ended_override_does_not_return_with_a_clock_step(
        self, driver: StoreDriver
    ) -> None:
        await set_override(driver, 10.0, concurrency=1)
        await driver.add(*"abc")
        driver.clock.advance(10.0)
        assert ids(await driver.take(limit=1)) == ["a"]
        driver.clock.step_wall(-3600.0)
        assert (await load_queue(driver)).override is None
        assert ids(await driver.take()) == ["b", "c"]

    async def test_j38_a_paused_queue_reports_the_end_of_its_pause(self, driver: StoreDriver) -> None:
        await set_override(driver, 10.0, concurrency=1)
        await driver.store.pause("q", until=driver.clock.wall() + 20)
        await driver.add("a")
        assert (await driver.claim()).next_due == 20.0
        await driver.store.resume("q")
        assert (await driver.claim()).next_due == 10.0

    async def test_j80_an_overridden_retention_ends(self, driver: StoreDriver) -> None:
        await set_override(driver, 10.0, keep_done=Retention(count=0))
        await driver.ended("a")
        driver.clock.advance(10.0)
        assert (await driver.store.prune()).pruned == 0
