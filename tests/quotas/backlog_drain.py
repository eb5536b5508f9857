"""Drains a backlog with a fleet of virtual processes against a simulated provider, and reports the result."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import msgspec

from tests.quotas.drain_setups import DrainSetup
from tests.quotas.fleet import (
    RARE_POLL_OPTIONS,
    Fleet,
    MakeStore,
    MissingReply,
    in_memory,
    patch_poll_intervals,
    run_fleet,
)
from tidemill import Context, Tidemill
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.simulator import CallableProvider, SimulatorRequest, optimal_drain_seconds


class DrainResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a drain.

    `lost` are jobs whose answer never came. `refused` counts refusals; all were avoidable, because there
    is no external traffic. `seconds` is the time until the last call was billed, and `best` is T_opt."""

    calls: int
    lost: int
    refused: int
    duplicate_payments: int
    seconds: float
    best: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.best


def run_drain(setup: DrainSetup, seed: int, make: MakeStore = in_memory) -> DrainResult:
    with patch_poll_intervals() if setup.long else nullcontext():
        return run_fleet(_drain(setup, seed, make), seed=seed, start=setup.start)


async def _drain(setup: DrainSetup, seed: int, make: MakeStore) -> DrainResult:
    provider = CallableProvider(setup.dialect, setup.quotas, setup.options, clock=VirtualClock(), seed=seed)
    fleet = Fleet(lambda app: write_task(app, setup, provider), make, seed)
    shortest = optimal_seconds(setup)
    async with fleet.app as app:
        await app.enqueue_many(fleet.task.job(number) for number in range(setup.calls))
        fleet.start(
            setup.processes, concurrency=setup.concurrency, **(RARE_POLL_OPTIONS if setup.long else {})
        )
        await fleet.drained(within=2 * shortest + 600, every=max(5.0, shortest / 500))
    request_log = provider.request_log
    return DrainResult(
        calls=len(request_log.arrivals),
        lost=setup.calls - len({bill.mark for bill in request_log.bills if bill.answered}),
        refused=len(request_log.refused),
        duplicate_payments=sum(request_log.duplicate_payments().values()),
        seconds=max(bill.at for bill in request_log.bills),
        best=shortest,
    )


def optimal_seconds(setup: DrainSetup) -> float:
    return optimal_drain_seconds(
        setup.quotas, setup.calls, cost=setup.counted, latency=setup.latency, wall=setup.start
    )


def write_task(app: Tidemill, setup: DrainSetup, provider: CallableProvider) -> Any:
    """Registers a task that makes one call."""
    pool = app.pool("api", *setup.limits)

    @app.task(name="ask", pool=pool, cost=setup.cost)
    async def ask(ctx: Context, number: int) -> None:
        answer = await provider.call(build_request(setup, number))
        if answer.status >= 400:
            raise MissingReply(answer)
        ctx.used((answer.status, answer.headers, answer.body))

    return ask


def build_request(setup: DrainSetup, number: int) -> SimulatorRequest:
    sent, allowed, generated = setup.tokens
    message = [{"role": "user", "content": "hello"}]
    headers = {"x-job": str(number), "x-input-tokens": str(sent), "x-output-tokens": str(generated)}
    match setup.dialect.name:
        case "gemini":
            body: dict[str, Any] = {"contents": [{"parts": [{"text": "hello"}]}]}
            return SimulatorRequest("/v1beta/models/gemini-2.5-flash:generateContent", body, headers)
        case "anthropic":
            body = {"model": "m", "max_tokens": allowed, "messages": message}
            return SimulatorRequest("/v1/messages", body, headers)
        case "openai":
            body = {"model": "m", "max_tokens": allowed, "messages": message}
            return SimulatorRequest("/v1/chat/completions", body, headers)
        case _:
            return SimulatorRequest(
                "/api/paas/v4/chat/completions", {"model": "m", "messages": message}, headers
            )
