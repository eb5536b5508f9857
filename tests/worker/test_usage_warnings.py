"""Usage reports that cannot be counted: each causes an event, and no job fails."""

from __future__ import annotations

import asyncio
import io
import itertools
from email.message import Message
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import msgspec
import pytest

from tests.worker.bench import Bench, Virtually
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.limits import Charge, Limit
from tidemill.core.needs import Need, with_excuse_count
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.tasks.context import Context
from tidemill.telemetry.events import FeedbackProblem, PoolClosed
from tidemill.worker.outcomes import MAX_EXCUSED_ATTEMPTS


def test_usage_that_no_pool_counts_is_reported_and_fails_nothing(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute"))

        async def call(ctx: Context, what: str) -> None:
            if what == "typo":
                ctx.used(tokns=5)
            elif what == "text":
                ctx.used("hello")
            else:
                ctx.used({"id": 7, "choices": []})
                ctx.used(SimpleNamespace(answer="hello"))
                ctx.used({"usage": {"total_tokens": 3, "prompt_tokens": 2}})
                ctx.used(requests=0, tokens=1)

        async def free(ctx: Context) -> None:
            ctx.used(tokens=5)

        bench.task(call, pool=pool, cost={"tokens": 9})
        bench.task(free)
        jobs = [await bench.enqueue("call", b'{"what": "%b"}' % what) for what in (b"typo", b"text", b"fine")]
        jobs.append(await bench.enqueue("free"))
        await bench.run_until_idle()
        assert {(await bench.job(job)).state for job in jobs} == {State.DONE}
        problems = {event.job: event.problem for event in bench.events_of(FeedbackProblem)}
        assert set(problems) == {jobs[0], jobs[1], jobs[3]}
        assert "no limit of pool 'api' counts tokns; it counts requests, tokens" in problems[jobs[0]]
        assert "a str says nothing" in problems[jobs[1]]
        assert "the task has no pool" in problems[jobs[3]]

    virtually(scenario)


def test_an_answer_read_by_hand_says_more_than_the_exception_made_of_it(virtually: Virtually) -> None:
    """The body of urllib's error is on the connection, and only the handler may read it."""
    violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
    details = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}]
    body = msgspec.json.encode({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}})

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def call(ctx: Context, read: bool) -> None:
            error = HTTPError("http://api", 429, "Too Many Requests", Message(), io.BytesIO(body))
            if read:
                ctx.used((error.code, error.headers, error.read()))
            raise error

        bench.task(call, pool=pool)
        for read, reason in ((b"false", "unknown"), (b"true", "day quota")):
            await bench.enqueue("call", b'{"read": %b}' % read)
            await bench.run_until_idle()
            assert bench.events_of(PoolClosed)[-1].reason == reason
            await bench.store.amend(Filter(), CancelJobs(reason="seen"))
            await bench.store.open_pool("api")

    virtually(scenario)


class Refused(Exception):
    def __init__(self, status: int | None, kind: str) -> None:
        super().__init__(kind)
        body = {"type": "error", "error": {"type": kind, "message": "requests per minute"}}
        self.response = SimpleNamespace(status_code=status, headers={"retry-after": "1"}, body=body)


@pytest.mark.parametrize("reported", ["by the exception", "by hand", "by both"])
@pytest.mark.parametrize(("charge", "counts"), [("actual", 0), ("completed", 0), ("reserved", 600)])
def test_a_refused_call_returns_its_tokens_and_its_request_counts(
    virtually: Virtually, reported: str, charge: Charge, counts: float
) -> None:
    async def scenario(bench: Bench) -> None:
        limits = Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute", charge=charge)
        pool = await bench.pool("api", *limits)

        async def call(ctx: Context) -> None:
            error = Refused(429, "rate_limit_error")
            if reported != "by the exception":
                ctx.used(error.response)
            if reported != "by hand":
                raise error
            raise KeyError("choices")

        bench.task(call, pool=pool, cost={"tokens": 600})
        job = await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(1)
        assert bench.events_of(PoolClosed)
        await bench.store.amend(Filter(), CancelJobs(reason="seen"))
        assert (await bench.job(job)).attempts == 0
        assert await bench.used("api") == {"requests per minute": 1.0, "tokens per minute": counts}
        worker.stop()
        await running

    virtually(scenario)


@pytest.mark.parametrize("how", ["broke off", "several calls", "answered"])
def test_tokens_that_may_have_been_used_are_not_returned(virtually: Virtually, how: str) -> None:
    """An answer that broke off, calls that share a reservation, and a call that succeeded after all."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute"))

        async def call(ctx: Context) -> None:
            error = Refused(None if how == "broke off" else 429, "overloaded_error")
            if how == "answered":
                ctx.used(error.response)
                return
            raise error

        requests = 2 if how == "several calls" else 1
        bench.task(call, pool=pool, cost={"tokens": 600, "requests": requests})
        await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(1)
        assert bench.events_of(PoolClosed)
        await bench.store.amend(Filter(), CancelJobs(reason="seen"))
        assert (await bench.used("api"))["tokens per minute"] == 600
        worker.stop()
        await running

    virtually(scenario)


SAID_NO: Any = (429, {"retry-after": "1"}, {"error": {"code": "rate_limit_exceeded", "message": "try again"}})
SAID_YES: Any = (200, {}, {"choices": ["hi"]})


def test_i16_an_error_after_a_reported_refusal_spends_no_attempt(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))
        answers = [SAID_NO, SAID_YES]

        async def call(ctx: Context) -> str:
            answer = answers.pop(0)
            ctx.used(answer)
            body: Any = answer[2]
            return str(body["choices"][0])

        bench.task(call, pool=pool, retry=Retry(attempts=1))
        job = await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(job)
        record = await bench.job(job)
        assert (record.state, record.attempts, record.result) == (State.DONE, 1, b'"hi"')
        worker.stop()
        await running

    virtually(scenario)


@pytest.mark.parametrize("later", [SAID_YES, None])
def test_an_error_after_an_answer_that_succeeded_counts(virtually: Virtually, later: Any) -> None:
    """A fallback provider answered, and the handler has a bug."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))
        other = await bench.pool("other", Limit.requests(10, per="minute"))

        async def call(ctx: Context) -> None:
            ctx.used(SAID_NO)
            ctx.used(other, SAID_NO)
            ctx.used(other, later) if later else ctx.used(other, requests=1)
            raise KeyError("choices")

        bench.task(call, pool=pool, retry=Retry(attempts=1))
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        assert (await bench.job(job)).state is State.FAILED

    virtually(scenario)


def test_a_refusal_of_a_pool_the_job_does_not_need_excuses_nothing(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))
        other = await bench.pool("other", Limit.requests(10, per="minute"))

        async def call(ctx: Context) -> None:
            ctx.used(other, SAID_NO)
            raise KeyError("choices")

        bench.task(call, pool=pool, retry=Retry(attempts=1))
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        assert (await bench.job(job)).state is State.FAILED

    virtually(scenario)


def test_after_three_excuses_in_a_row_the_error_counts(virtually: Virtually) -> None:
    """A fallback provider without a report, with a bug behind it: each attempt is excused three times."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(100, per="minute"))
        calls: list[float] = []

        async def call(ctx: Context) -> None:
            calls.append(asyncio.get_running_loop().time())
            ctx.used(SAID_NO)
            raise KeyError("choices")

        bench.task(call, pool=pool, retry=Retry(attempts=2, first=0.1, jitter=0))
        job = await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(job)
        record = await bench.job(job)
        assert (record.state, record.attempts) == (State.FAILED, 2)
        assert len(calls) == 2 * (1 + MAX_EXCUSED_ATTEMPTS)
        waits = [later - sooner for sooner, later in itertools.pairwise(calls)]
        assert min(waits) >= 1.5, "never before Retry-After"
        worker.stop()
        await running

    virtually(scenario)


def test_the_job_that_was_excused_most_often_decides_for_its_batch(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(100, per="minute"))
        calls: list[int] = []

        async def embed(ctx: Context, items: list[int]) -> list[int]:
            calls.append(len(items))
            ctx.used(SAID_NO)
            raise KeyError("vectors")

        bench.batch_task(embed, pool=pool, max_items=2, on_error="fail", retry=Retry(attempts=1))
        definition = bench.tasks["embed"]
        assert definition.batch is not None
        needs = (Need("api", None),)
        jobs = [
            NewJob(
                id=str(number),
                task="embed",
                payload=b'{"item": 1}',
                needs=with_excuse_count(needs, excused),
                batching=definition.batch.policy,
            )
            for number, excused in enumerate([0, MAX_EXCUSED_ATTEMPTS])
        ]
        await bench.store.insert([JobGroup("default", tuple(jobs))])
        running = bench.start(worker := bench.worker())
        await bench.ended("0", "1")
        assert calls == [2]
        worker.stop()
        await running

    virtually(scenario)


def test_a_claim_that_reserves_no_call_adds_nothing_to_the_reports(virtually: Virtually) -> None:
    """Each of three calls is reserved and reported. The claim itself reserves no call."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("voice", Limit.characters(1000, per="minute"), Limit.concurrent(4))

        async def speak(ctx: Context) -> None:
            for characters in (100, 90, 68):
                async with ctx.spend(pool, concurrent=0, characters=characters):
                    ctx.used(pool, characters=characters)

        bench.task(speak, pool=pool, cost={"characters": 0, "requests": 0})
        await bench.enqueue("speak")
        await bench.run_until_idle()
        assert await bench.used("voice") == {"characters per minute": 258, "calls at once": 0}

    virtually(scenario)
