"""The tasks of the simulated application: a job's payload determines its behaviour."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tests.simulation.invariants.claims import ATTEMPTS
from tests.simulation.outcome_log import HandlerRun, OutcomeLog
from tests.simulation.provider import POOLS, Provider, need_of
from tidemill.core.retry import Retry
from tidemill.errors import GiveUp, RetryAfter, SnoozeFor
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition, make_task_definition
from tidemill.tasks.pools import Pool
from tidemill.testing.virtual_processes import current_process, kill_current_process

Kind = Literal["quick", "long", "flaky", "later", "snooze", "hopeless", "stuck", "poison"]


USES: dict[str, Any] = {
    "metered": Pool("account", POOLS["account"]),
    "fetched": Pool("site", POOLS["site"]).by(lambda script: "ab"[script.serial % 2]),
}
"""The tasks with pools."""


class Script(msgspec.Struct, frozen=True):
    """The behaviour of a job. `times` is how often it fails or snoozes before it succeeds; `serial` makes
    payloads differ."""

    kind: Kind
    seconds: float
    times: int
    serial: int


class _Payload(msgspec.Struct):
    script: Script


def script_of(payload: bytes) -> Script:
    return msgspec.json.decode(payload, type=_Payload).script


@dataclass(slots=True)
class Handlers:
    """The handlers of all workers. They count their runs here, outside the store."""

    outcome_log: OutcomeLog
    provider: Provider
    snoozed: Counter[str] = field(default_factory=Counter)
    lines: int = 0

    def tasks(self, worker: str, *, knows_rare: bool) -> dict[str, TaskDefinition]:
        async def act(ctx: Context, script: Script) -> int:
            return await self._act(worker, ctx, script)

        async def call_and_act(ctx: Context, script: Script) -> int:
            self.provider.call(need_of(ctx.task, script.serial))
            return await self._act(worker, ctx, script)

        retry = Retry(attempts=ATTEMPTS, first=0.5, factor=2)
        names = ["work", "rare"] if knows_rare else ["work"]
        tasks = [make_task_definition(act, name=name, retry=retry, timeout=60) for name in names]
        tasks.append(make_task_definition(act, name="isolated", retry=retry, timeout=60, isolate=True))
        tasks += [
            make_task_definition(call_and_act, name=name, pool=pool, retry=retry, timeout=60)
            for name, pool in USES.items()
        ]
        return {task.name: task for task in tasks}

    async def _act(self, worker: str, ctx: Context, script: Script) -> int:
        process = current_process()
        isolated = process is not None and process.name != worker
        run = HandlerRun(ctx.job_id, ctx.attempt, ctx.generation, worker, isolated, self.outcome_log.now())
        self.outcome_log.starts.append(run)
        try:
            await self._perform(ctx, script)
        except asyncio.CancelledError:
            if script.kind != "stuck":  # such a job waits for its timeout, which is charged
                self.outcome_log.interrupted.append(run)
            raise
        self.outcome_log.commits.append(run)
        return script.serial

    async def _perform(self, ctx: Context, script: Script) -> None:
        match script.kind:
            case "quick":
                await asyncio.sleep(script.seconds)
            case "long":
                await self._work_long(ctx, script.seconds)
            case "snooze":
                self.snoozed[ctx.job_id] += 1
                if self.snoozed[ctx.job_id] <= script.times:
                    raise SnoozeFor(script.seconds)
            case "hopeless":
                raise GiveUp("there is no hope")
            case "stuck":
                await asyncio.sleep(1e6)
            case "poison":
                await asyncio.sleep(script.seconds)
                await kill_current_process()
            case "flaky" | "later":
                await _fail_at_first(ctx, script)

    async def _work_long(self, ctx: Context, seconds: float) -> None:
        for part in range(4):
            await asyncio.sleep(seconds / 4)
            await ctx.progress((part + 1) / 4)
            self.lines += 1
            ctx.log(f"line {self.lines} of {ctx.job_id}")


async def _fail_at_first(ctx: Context, script: Script) -> None:
    await asyncio.sleep(script.seconds)
    if ctx.attempt > script.times:
        return
    if script.kind == "later":
        raise RetryAfter(script.seconds)
    raise ConnectionError(f"attempt {ctx.attempt} fails")
