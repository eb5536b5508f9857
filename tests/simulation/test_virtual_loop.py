"""Tests of the virtual event loop, its clock, and processes that die and freeze at any await."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import cast

import pytest

from tidemill.testing.clocks import VirtualClock
from tidemill.testing.virtual_loop import (
    START_TIME,
    VirtualDeadlock,
    VirtualLoop,
    VirtualStandstill,
    run_virtual,
)
from tidemill.testing.virtual_processes import current_process, kill_current_process


def virtual_loop() -> VirtualLoop:
    return cast("VirtualLoop", asyncio.get_running_loop())


def test_sleeping_for_days_takes_no_time_and_keeps_order() -> None:
    async def scenario() -> list[str]:
        order: list[str] = []

        async def sleeper(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            order.append(name)

        await asyncio.gather(sleeper(86_400, "day"), sleeper(1, "second"), sleeper(3_600, "hour"))
        assert asyncio.get_running_loop().time() == 86_400
        return order

    assert run_virtual(scenario()) == ["second", "hour", "day"]


def test_timeouts_and_task_groups_work() -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        assert asyncio.get_running_loop().time() == 5
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1))
            group.create_task(asyncio.sleep(2))
        assert asyncio.get_running_loop().time() == 7

    run_virtual(scenario())


def test_nothing_left_to_wait_for_is_an_error_that_names_the_tasks() -> None:
    async def scenario() -> None:
        await asyncio.create_task(asyncio.Event().wait(), name="hopeless")

    with pytest.raises(VirtualDeadlock, match=r"deadlock in virtual time: 2 tasks .*hopeless"):
        run_virtual(scenario())


def test_a_busy_loop_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.testing.virtual_loop.MAX_CALLBACKS_PER_INSTANT", 1_000)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def spin() -> None:
            loop.call_soon(spin)

        spin()
        await asyncio.sleep(1)

    with pytest.raises(VirtualStandstill):
        run_virtual(scenario())


def test_call_soon_threadsafe_and_executor_run_inline() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        loop.call_soon_threadsafe(rung.set)
        await rung.wait()
        assert await loop.run_in_executor(None, sum, (1, 2)) == 3
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    run_virtual(scenario())


def test_remaining_tasks_are_cancelled_as_asyncio_run_does() -> None:
    ended: list[str] = []

    async def service() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("service")

    async def scenario() -> None:
        asyncio.create_task(service())  # noqa: RUF006 - left behind on purpose
        await asyncio.sleep(1)

    run_virtual(scenario())
    assert ended == ["service"]


def test_clock_follows_the_loop_and_steps_apart_from_boot_time() -> None:
    async def scenario() -> None:
        clock, wrong = VirtualClock(), VirtualClock(skew=-300)
        assert (clock.wall(), clock.boot()) == (START_TIME, 0)
        assert wrong.wall() == START_TIME - 300
        await asyncio.sleep(10)
        clock.step_wall(3_600)
        assert (clock.wall(), clock.boot()) == (START_TIME + 3_610, 10)
        boot = clock.boot_id
        clock.reboot()
        assert clock.boot_id != boot

    run_virtual(scenario())


def two_processes(seed: int) -> str:
    async def scenario() -> str:
        order: list[str] = []

        async def steps(name: str) -> None:
            for _ in range(10):
                order.append(name)
                await asyncio.sleep(0)

        loop = virtual_loop()
        _, a = loop.spawn("a", steps("a"))
        _, b = loop.spawn("b", steps("b"))
        await asyncio.gather(a, b)
        return "".join(order)

    return run_virtual(scenario(), seed=seed)


def test_the_seed_decides_the_order_and_repeats_it() -> None:
    assert two_processes(1) == two_processes(1)
    assert len({two_processes(seed) for seed in range(10)}) > 1


def test_a_killed_process_runs_nothing_more_not_even_finally(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            seen.append("finally")
            await clean_up()

    async def clean_up() -> None:
        await asyncio.sleep(1)
        await asyncio.sleep(1)

    async def main() -> None:
        asyncio.get_running_loop().call_later(5, seen.append, "timer")
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async def scenario() -> list[str]:
        process, _ = virtual_loop().spawn("victim", main())
        await asyncio.sleep(4)
        process.kill()
        gc.collect()
        await asyncio.sleep(100)
        gc.collect()
        return list(seen)

    with caplog.at_level(logging.DEBUG):
        assert run_virtual(scenario()) == []
        gc.collect()
    assert "destroyed" not in caplog.text


def test_a_process_can_be_killed_at_every_await() -> None:
    """Also between awaits that take no time: kills are scheduled by steps, not by seconds."""

    async def scenario(kill_at: int) -> int:
        reached = 0

        async def main() -> None:
            nonlocal reached
            for _ in range(20):
                reached += 1
                await asyncio.sleep(0)

        process, _ = virtual_loop().spawn("victim", main())
        process.at_step(kill_at, process.kill)
        await asyncio.sleep(1)
        return reached

    assert [run_virtual(scenario(step)) for step in range(1, 20)] == list(range(1, 20))


def test_a_process_can_kill_itself() -> None:
    async def scenario() -> bool:
        async def main() -> None:
            await kill_current_process()
            raise AssertionError

        process, task = virtual_loop().spawn("victim", main())
        await asyncio.sleep(1)
        assert not process.alive
        return task.done()

    assert run_virtual(scenario()) is False


def test_a_paused_process_runs_late_and_in_order() -> None:
    async def scenario() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        loop = virtual_loop()

        async def ticker() -> None:
            for tick in range(1, 4):
                loop.call_at(tick * 10, lambda tick=tick: seen.append((f"tick {tick}", loop.time())))
            await asyncio.sleep(35)
            seen.append(("end", loop.time()))

        process, task = loop.spawn("frozen", ticker())
        await asyncio.sleep(15)
        process.pause(10)
        process.pause(30)
        await task
        return seen

    assert run_virtual(scenario()) == [("tick 1", 10), ("tick 2", 45), ("tick 3", 45), ("end", 45)]


def test_tasks_belong_to_the_process_that_started_them() -> None:
    async def scenario() -> list[str]:
        names: list[str] = []

        async def note() -> None:
            process = current_process()
            names.append(process.name if process else "outside")

        async def main() -> None:
            await asyncio.create_task(note())
            await virtual_loop().outside(note())

        _, task = virtual_loop().spawn("owner", main())
        await task
        await note()
        return names

    assert run_virtual(scenario()) == ["owner", "outside", "outside"]
