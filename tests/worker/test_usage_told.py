"""What a handler says of its pools that nobody can use: told, and nothing fails for it."""

from __future__ import annotations

import io
from email.message import Message
from types import SimpleNamespace
from urllib.error import HTTPError

import msgspec

from tests.worker.bench import Bench, Virtually
from tidemill.core.changes import Cancel
from tidemill.core.filters import Filter
from tidemill.core.limits import Limit
from tidemill.core.states import State
from tidemill.tasks.context import Context
from tidemill.telemetry.events import FeedbackProblem, PoolClosed


def test_usage_nobody_counts_is_told_and_fails_nothing(virtually: Virtually) -> None:
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
        said = {event.job: event.problem for event in bench.told(FeedbackProblem)}
        assert set(said) == {jobs[0], jobs[1], jobs[3]}
        assert "no limit of pool 'api' counts tokns; it counts requests, tokens" in said[jobs[0]]
        assert "a str says nothing" in said[jobs[1]]
        assert "the task has no pool" in said[jobs[3]]

    virtually(scenario)


def test_an_answer_read_by_hand_says_more_than_the_exception_made_of_it(virtually: Virtually) -> None:
    """The body of urllib's error is on the connection, where nobody but the handler may read it."""
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
            assert bench.told(PoolClosed)[-1].reason == reason
            await bench.store.amend(Filter(), Cancel(reason="seen"))
            await bench.store.open_pool("api")

    virtually(scenario)
