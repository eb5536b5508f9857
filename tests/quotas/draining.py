"""A backlog drained by a fleet of virtual processes against a simulated provider, and what it came to."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import msgspec

from tests.quotas.fleet import SELDOM, Fleet, MakeStore, NotAnswered, in_memory, run_fleet, seldom
from tests.quotas.setups import Setup
from tidemill import Context, Tidemill
from tidemill.testing.providers import CalledProvider, Request, best_drain
from tidemill.testing.virtual import VirtualClock


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """`lost`: jobs whose answer never came. `refused`: every one was avoidable, nobody else was there.
    `seconds`: until the last call was billed; `best`: what no scheduler can go below."""

    calls: int
    lost: int
    refused: int
    paid_again: int
    seconds: float
    best: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.best


def drained(setup: Setup, seed: int, make: MakeStore = in_memory) -> Figures:
    with seldom() if setup.long else nullcontext():
        return run_fleet(_drain(setup, seed, make), seed=seed, start=setup.start)


async def _drain(setup: Setup, seed: int, make: MakeStore) -> Figures:
    provider = CalledProvider(setup.dialect, setup.quotas, setup.options, clock=VirtualClock(), seed=seed)
    fleet = Fleet(lambda app: written(app, setup, provider), make, seed)
    shortest = best(setup)
    async with fleet.app as app:
        await app.enqueue_many(fleet.task.job(number) for number in range(setup.calls))
        fleet.start(setup.processes, concurrency=setup.concurrency, **(SELDOM if setup.long else {}))
        await fleet.drained(within=2 * shortest + 600, every=max(5.0, shortest / 500))
    ledger = provider.ledger
    return Figures(
        calls=len(ledger.arrivals),
        lost=setup.calls - len({bill.mark for bill in ledger.bills if bill.answered}),
        refused=len(ledger.refused),
        paid_again=sum(ledger.paid_again().values()),
        seconds=max(bill.at for bill in ledger.bills),
        best=shortest,
    )


def best(setup: Setup) -> float:
    return best_drain(setup.quotas, setup.calls, cost=setup.counted, latency=setup.latency, wall=setup.start)


def written(app: Tidemill, setup: Setup, provider: CalledProvider) -> Any:
    """A task that makes one call."""
    pool = app.pool("api", *setup.limits)

    @app.task(name="ask", pool=pool, cost=setup.cost)
    async def ask(ctx: Context, number: int) -> None:
        answer = await provider.call(request(setup, number))
        if answer.status >= 400:
            raise NotAnswered(answer)
        ctx.used((answer.status, answer.headers, answer.body))

    return ask


def request(setup: Setup, number: int) -> Request:
    sent, allowed, generated = setup.tokens
    message = [{"role": "user", "content": "hello"}]
    headers = {"x-job": str(number), "x-input-tokens": str(sent), "x-output-tokens": str(generated)}
    match setup.dialect.name:
        case "gemini":
            said: dict[str, Any] = {"contents": [{"parts": [{"text": "hello"}]}]}
            return Request("/v1beta/models/gemini-2.5-flash:generateContent", said, headers)
        case "anthropic":
            said = {"model": "m", "max_tokens": allowed, "messages": message}
            return Request("/v1/messages", said, headers)
        case "openai":
            said = {"model": "m", "max_tokens": allowed, "messages": message}
            return Request("/v1/chat/completions", said, headers)
        case _:
            return Request("/api/paas/v4/chat/completions", {"model": "m", "messages": message}, headers)
