"""Paid once: the records of a simulated provider show what was billed. The worker that makes the call is
killed between every two awaits of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import pytest

from tests.worker.bench import Bench
from tidemill.core.checkpoints import OnUnknown
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.operator_changes import RetryJobs
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.context import Context
from tidemill.telemetry.events import StepOutcomeUnknown
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.simulator import (
    CallableProvider,
    ExternalTraffic,
    OpenAIDialect,
    Quota,
    SimulatorOptions,
    SimulatorReply,
    SimulatorRequest,
)
from tidemill.testing.virtual_loop import VirtualLoop, run_virtual

LEASE = 5.0
PLENTY = (Quota.rolling("requests", 1000),)


class NotAnswered(Exception):
    """An error as client libraries raise it."""

    def __init__(self, answer: SimulatorReply) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.status_code, self.headers, self.body = answer.status, answer.headers, answer.body


@dataclass
class Told:
    text: str


class Scene:
    """One job whose handler pays for a step and continues; `bills` are the provider's."""

    def __init__(
        self, bench: Bench, on_unknown: OnUnknown, quotas: tuple[Quota, ...], options: SimulatorOptions
    ) -> None:
        self.bench = bench
        self.provider = CallableProvider(OpenAIDialect(), quotas, options, clock=bench.clock, seed=1)
        self.ends: list[str] = []

        async def ask(question: str) -> Told:
            body = {"model": "m", "messages": [{"role": "user", "content": question}]}
            answer = await self.provider.call(
                SimulatorRequest("/v1/chat/completions", body, {"x-job": "job"})
            )
            if answer.status >= 400:
                raise NotAnswered(answer)
            return Told(question)

        async def talk(ctx: Context) -> str:
            reply = await ctx.step("ask", ask, "why?", paid=True, on_unknown=on_unknown)
            for _ in range(3):
                await asyncio.sleep(0.1)
            assert isinstance(reply, Told)
            return reply.text

        bench.task(talk, retry=Retry(attempts=5, first=15, jitter=0))

    @property
    def bills(self) -> int:
        return len(self.provider.request_log.bills)

    def worker(self, name: str) -> Any:
        return self.bench.worker(id=name, lease=LEASE, reclaim_every=1.0, concurrency=2)

    async def killed_at(self, step: int) -> tuple[Job, int]:
        """Returns the final job, and how many steps the killed worker made."""
        job = await self.bench.enqueue("talk")
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        process, _ = loop.spawn("first", self.worker("first").run())
        process.at_step(step, process.kill)
        await asyncio.sleep(10)
        self.bench.start(self.worker("second"))
        await self.bench.ended(job)
        return await self.bench.job(job), process.steps


def _scene(
    on_unknown: OnUnknown, step: int, quotas: tuple[Quota, ...] = PLENTY, **options: Any
) -> tuple[Scene, Job, int]:
    async def main() -> tuple[Scene, Job, int]:
        clock = VirtualClock()
        store = await MemoryStore(clock=clock, entropy=SeededEntropy(2)).open()
        scene = Scene(
            Bench(store, clock), on_unknown, quotas, SimulatorOptions(latency=(0.5, 0.5), **options)
        )
        return scene, *await scene.killed_at(step)

    return run_virtual(main())


def _moments() -> list[int]:
    """Returns every step of a worker from its start to the settlement, including the call."""
    _, _, steps = _scene("park", 10_000)
    return list(range(1, min(steps, 150)))


def test_i18_killed_anywhere_under_retry_nothing_is_paid_that_was_known() -> None:
    unknown = 0
    for moment in _moments():
        scene, job, _ = _scene("retry", moment)
        lost = len(scene.provider.request_log.unknown)
        assert job.state is State.DONE, moment
        assert job.result == b'"why?"', moment
        assert 1 <= scene.bills <= 1 + lost, moment
        unknown += lost
    assert unknown, "or it was never killed between sending and keeping"


def test_i18_killed_anywhere_under_park_nothing_is_ever_paid_twice() -> None:
    states = set[State]()
    for moment in _moments():
        scene, job, _ = _scene("park", moment)
        states.add(job.state)
        assert scene.bills <= 1, moment
        if job.state is State.DONE:
            assert scene.bills == 1, moment
        else:
            assert (job.state, job.reason) == (State.FAILED, "unknown outcome"), moment
            assert job.error is not None
            assert "step 'ask'" in job.error.message
            assert f"tidemill jobs retry {job.id}" in job.error.message
    assert states == {State.DONE, State.FAILED}


@pytest.mark.parametrize("on_unknown", ["retry", "park"])
def test_i18_an_answer_lost_after_billing_is_unknown(on_unknown: OnUnknown) -> None:
    scene, job, _ = _scene(on_unknown, 10_000, lost=frozenset({1}))
    assert len(scene.provider.request_log.unknown) == 1
    assert scene.bench.events_of(StepOutcomeUnknown)
    if on_unknown == "retry":
        assert (job.state, scene.bills) == (State.DONE, 2)
    else:
        assert (job.state, job.reason, scene.bills) == (State.FAILED, "unknown outcome", 1)


def test_k4_a_refused_call_is_not_unknown() -> None:
    """The first call is refused because external calls fill the window; under park it runs again."""
    external = ExternalTraffic(times=(0.0,))
    scene, job, _ = _scene("park", 10_000, (Quota.rolling("requests", 1),), external=(external,))
    assert scene.provider.request_log.refused
    assert scene.bench.events_of(StepOutcomeUnknown) == []
    assert (job.state, scene.bills) == (State.DONE, 1)


def test_k2_a_parked_job_retried_by_hand_pays_again() -> None:
    async def main() -> None:
        clock = VirtualClock()
        store = await MemoryStore(clock=clock, entropy=SeededEntropy(2)).open()
        bench = Bench(store, clock)
        scene = Scene(bench, "park", PLENTY, SimulatorOptions(lost=frozenset({1})))
        job = await bench.enqueue("talk")
        bench.start(scene.worker("w"))
        await bench.ended(job)
        assert (await bench.job(job)).reason == "unknown outcome"
        await store.amend(Filter(ids=(job,)), RetryJobs())
        await bench.ended(job)
        assert ((await bench.job(job)).state, scene.bills) == (State.DONE, 2)

    run_virtual(main())
