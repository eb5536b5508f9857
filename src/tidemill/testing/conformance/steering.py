"""What is set on queues, who leads, and handles on one truth."""

# ruff: noqa: S101 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tidemill.core.changes import Cancel
from tidemill.core.courses import Advance, Kind, Next
from tidemill.core.filters import Filter
from tidemill.core.job import Group, Job
from tidemill.core.queues import (
    DAY,
    Override,
    QueueChanges,
    QueueSettings,
    Retention,
    Verdict,
    for_paid_tasks,
)
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.driver import Driver, ids, new


class TestQueues:
    async def test_q1_q5_declared_or_first_seen_by_name(self, drive: Driver) -> None:
        await drive.add("a", queue="seen")
        await drive.store.declare({"b": QueueSettings(weight=3), "a": QueueSettings()})
        queues = await drive.store.queues()
        assert [queue.name for queue in queues] == ["a", "b", "seen"]
        assert queues[1].settings == QueueSettings(weight=3)
        assert queues[2].settings == QueueSettings()

    async def test_q1_q2_a_deploy_erases_no_override_and_no_pause(self, drive: Driver) -> None:
        changes, now = QueueChanges(concurrency=1), drive.clock.wall()
        await drive.store.declare({"q": QueueSettings(concurrency=5, weight=2)})
        await drive.store.override("q", changes, by="ann", reason="slow disk", until=now + 60)
        await drive.store.pause("q", reason="why")
        await drive.store.declare({"q": QueueSettings(concurrency=9, weight=3)})
        (queue,) = await drive.store.queues()
        assert queue.override == Override(
            changes=changes, by="ann", reason="slow disk", since=now, until=now + 60
        )
        assert queue.settings == QueueSettings(concurrency=1, weight=3)
        assert queue.declared == QueueSettings(concurrency=9, weight=3)
        assert queue.pause is not None
        assert (queue.pause.reason, queue.pause.since) == ("why", drive.clock.wall())
        await drive.store.clear_override("q")
        await drive.store.resume("q")
        (queue,) = await drive.store.queues()
        assert (queue.settings.concurrency, queue.override, queue.pause) == (9, None, None)

    async def test_q1_a_shorter_default_leaves_that_of_paid_tasks(self, drive: Driver) -> None:
        """Two programs know different tasks of the queue, and start in any order."""
        paid = for_paid_tasks(QueueSettings())
        for settings in (QueueSettings(), paid, QueueSettings(weight=2)):
            await drive.store.declare({"q": settings})
        (queue,) = await drive.store.queues()
        assert queue.declared == for_paid_tasks(QueueSettings(weight=2))
        chosen = QueueSettings(keep_done=Retention(age=DAY, count=100_000))
        await drive.store.declare({"q": chosen})
        (queue,) = await drive.store.queues()
        assert queue.declared.keep_done == chosen.keep_done
        assert queue.declared.keep_failed == paid.keep_failed

    @pytest.mark.parametrize(
        "kept",
        [
            Retention(age=-5.0),
            Retention(age=float("nan")),
            Retention(age=float("inf")),
            Retention(count=-3),
        ],
    )
    async def test_q1_q2_a_bound_below_nothing_is_refused(self, drive: Driver, kept: Retention) -> None:
        """It would empty the shelf at the next prune."""
        await drive.ended("a")
        for field in ("keep_done", "keep_failed", "keep_cancelled"):
            given: dict[str, Any] = {field: kept}
            with pytest.raises(ConfigurationError, match=field):
                await drive.store.declare({"q": QueueSettings(**given)})
            with pytest.raises(ConfigurationError, match=field):
                await drive.store.override("q", QueueChanges(**given), by="ann")
        assert (await drive.store.prune()).pruned == 0
        (queue,) = await drive.store.queues()
        assert (queue.declared, queue.override) == (QueueSettings(), None)

    @pytest.mark.parametrize(
        ("until", "reason"),
        [(float("nan"), None), (float("inf"), None), (None, "a\0b"), (None, "\ud800")],
    )
    async def test_q3_a_pause_that_cannot_be_kept_is_refused(
        self, drive: Driver, until: float | None, reason: str | None
    ) -> None:
        await drive.store.declare({"q": QueueSettings()})
        with pytest.raises(ConfigurationError):
            await drive.store.pause("q", until=until, reason=reason)
        with pytest.raises(ConfigurationError):
            await drive.store.pause("never", until=until, reason=reason)
        (queue,) = await drive.store.queues()
        assert (queue.name, queue.pause) == ("q", None)

    async def test_q2_an_override_holds_from_the_next_verb_on(self, drive: Driver) -> None:
        await drive.add(*"abc")
        await drive.store.override("q", QueueChanges(concurrency=1, max_length=2), by="ann")
        assert ids(await drive.take()) == ["a"]
        assert (await drive.add("d"))[0].verdict is Verdict.FULL
        await drive.store.clear_override("q")
        assert ids(await drive.take()) == ["b", "c"]

    async def test_q2_a_raised_key_limit_opens_its_lanes(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(key_concurrency=1)})
        await drive.add(*[new(name, key="k") for name in "abc"])
        assert ids(await drive.take()) == ["a"]
        assert await drive.take() == []
        await drive.store.override("q", QueueChanges(key_concurrency=2), by="ann")
        assert ids(await drive.take()) == ["b"]
        await drive.store.clear_override("q")
        assert await drive.take() == []


class TestCoordinator:
    async def test_c1_one_at_a_time_until_the_lease_is_over(self, drive: Driver) -> None:
        assert await leads(drive, "w", "prune") == ("prune",)
        assert await leads(drive, "x", "prune") == ()
        assert await leads(drive, "x", "reclaim", "prune", "tend") == ("reclaim", "tend")
        drive.clock.advance(9.0)
        assert await leads(drive, "w", "tend", "prune") == ("prune",)
        drive.clock.advance(9.0)
        assert await leads(drive, "x", "prune") == ()
        drive.clock.advance(1.0)
        assert await leads(drive, "x", "prune") == ("prune",)

    async def test_c1_who_has_to_wait_is_told_for_how_long(self, drive: Driver) -> None:
        led = await drive.store.lead(["prune", "reclaim"], "w", 10.0)
        assert led.free_in is None
        drive.clock.advance(4.0)
        await drive.store.lead(["reclaim"], "w", 10.0)
        led = await drive.store.lead(["prune", "reclaim"], "x", 10.0)
        assert led.leads == ()
        assert led.free_in == pytest.approx(6.0)
        assert led.clock == await drive.store.read_clock()
        drive.clock.advance(6.0)
        led = await drive.store.lead(["prune", "reclaim"], "x", 10.0)
        assert led.leads == ("prune",)
        assert led.free_in == pytest.approx(4.0)

    async def test_c2_resigning_lets_another_lead_at_once(self, drive: Driver) -> None:
        await leads(drive, "w", "prune", "reclaim")
        await drive.store.resign(["prune", "reclaim"], "x")
        assert await leads(drive, "x", "prune", "reclaim") == ()
        await drive.store.resign(["prune", "nobody's"], "w")
        assert await leads(drive, "x", "prune", "reclaim") == ("prune",)

    async def test_c3_what_waits_is_told(self, drive: Driver) -> None:
        led = await drive.store.lead([], "w", 10.0)
        assert (led.leads, led.free_in) == ((), None)
        assert led.dues == {Kind.FLOW: None, Kind.SCHEDULE: None}
        due = drive.clock.wall() + 30.0
        begins = Next(name="n", state="active", record=b"{}", due=due)
        await drive.store.advance(
            [
                Advance(kind=Kind.SCHEDULE, id="nightly", expected=0, next=begins),
                Advance(kind=Kind.FLOW, id="dub", expected=0, next=replace(begins, due=None), again=True),
            ]
        )
        assert (await drive.store.lead([], "w", 10.0)).dues == {Kind.FLOW: 0.0, Kind.SCHEDULE: 30.0}
        drive.clock.advance(31.0)
        assert (await drive.store.lead([], "w", 10.0)).dues == {Kind.FLOW: 0.0, Kind.SCHEDULE: 0.0}


async def leads(drive: Driver, worker: str, *duties: str) -> tuple[str, ...]:
    return (await drive.store.lead(duties, worker, 10.0)).leads


class TestHandles:
    async def test_s3_another_handle_sees_the_same(self, drive: Driver) -> None:
        other = await drive.store.another().open()
        try:
            await drive.add("a")
            assert ids((await Driver(other, drive.clock).claim("x")).jobs) == ["a"]
            assert await drive.state("a") is State.RUNNING
        finally:
            await other.close()

    async def test_s2_closing_twice_is_harmless(self, drive: Driver) -> None:
        other = await drive.store.another().open()
        await other.close()
        await other.close()
        await drive.add("a")

    async def test_s3_a_thread_without_a_loop_does_what_the_others_do(self, drive: Driver) -> None:
        """By blocking verbs; where a store has none, on a handle and a loop of its own."""
        blocking = drive.store.blocking
        group, wanted = Group("q", (new("a"),)), Filter(ids=("a",))

        async def on_a_loop() -> tuple[Verdict, tuple[str, ...], Job | None]:
            other = await drive.store.another().open()
            try:
                ((answer,),) = await other.insert([group])
                changed = (await other.amend(wanted, Cancel())).changed
                return answer.verdict, changed, (await other.get(["a"]))[0]
            finally:
                await other.close()

        def in_a_thread() -> tuple[Verdict, tuple[str, ...], Job | None]:
            if blocking is None:
                return asyncio.run(on_a_loop())
            ((answer,),) = blocking.insert([group])
            changed = blocking.amend(wanted, Cancel()).changed
            return answer.verdict, changed, blocking.get(["a"])[0]

        verdict, changed, job = await asyncio.to_thread(in_a_thread)
        assert (verdict, changed) == (Verdict.ACCEPTED, ("a",))
        assert job == await drive.job("a")
