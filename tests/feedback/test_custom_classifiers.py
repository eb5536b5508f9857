"""The application's classifiers run first, also in child processes, and never fail the attempt."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tests.docs.page_runner import code_blocks
from tests.docs.pages import page, section
from tests.worker.bench import Bench, Virtually
from tests.worker.conftest import virtually  # noqa: F401 - a fixture
from tests.worker.fake_provider import Refused
from tidemill import ConfigurationError, Context, Limit, Reason, Refusal, Retry, State, Tidemill
from tidemill.core.pools import PoolSettings
from tidemill.feedback import build_observation, read_feedback
from tidemill.tasks.pools import Classifiers
from tidemill.telemetry.events import FeedbackProblem, PoolClosed


class Busy(Exception):
    """An error that no adapter knows."""


def busy(error: Any) -> Refusal | None:
    return Refusal(reason=Reason.RATE, retry_after=40) if isinstance(error, Busy) else None


def test_a_pools_own_is_asked_before_the_applications_and_both_before_the_adapters() -> None:
    called: list[str] = []
    app = Tidemill("memory://")

    @app.classify
    def of_all(error: Any) -> None:
        called.append(f"all {error}")

    def of_one(error: Any) -> None:
        called.append(f"one {error}")

    app.pool("one", Limit.requests(1, per=1), classify=of_one)
    for pool in ("one", "two"):
        read_feedback(Exception("oops"), now=0, classifiers=app.classifiers.of(pool))
    assert called == ["one oops", "all oops", "all oops"]


@pytest.mark.parametrize("answer", [False, Refusal(reason=Reason.DAY_QUOTA)])
def test_the_classifier_s_answer_is_used(answer: Any) -> None:
    reading = read_feedback(Refused(429, {"retry-after": "5"}), now=0, classifiers=[lambda _: answer])
    assert reading.refusal == (answer or None)


@pytest.mark.parametrize("wrong", ["refused", True, 0])
def test_something_else_is_a_problem_and_the_adapters_are_asked(wrong: Any) -> None:
    reading = read_feedback(Refused(429, {"retry-after": "5"}), now=0, classifiers=[lambda _: wrong])
    assert reading.refusal is not None
    assert len(reading.problems) == 1


def test_an_invalid_classifier_is_refused_at_declaration() -> None:
    async def later(error: Any) -> None: ...

    app = Tidemill("memory://")
    with pytest.raises(ConfigurationError, match="pool 'api': classify: must be a plain function"):
        app.pool("api", Limit.requests(1, per=1), classify=later)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="classify: must be a function"):
        app.classify("never")  # type: ignore[type-var]


def test_i16_its_refusal_closes_the_pool_and_costs_no_attempt(virtually: Virtually) -> None:  # noqa: F811
    async def scenario(bench: Bench) -> None:
        times: list[float] = []
        loop = asyncio.get_running_loop()
        pool = await bench.pool("api", Limit.requests(10, per="minute"))
        pool.classifiers = Classifiers()
        pool.classifiers.add(busy, "api")

        async def call() -> None:
            times.append(loop.time())
            if len(times) == 1:
                raise Busy

        bench.task(call, pool=pool, retry=Retry(attempts=1))
        job = await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(job)
        assert times[1] == pytest.approx(40.5, abs=0.2)
        assert (await bench.job(job)).attempts == 1
        assert [event.reason for event in bench.events_of(PoolClosed)] == ["rate"]
        worker.stop()
        await running

    virtually(scenario)


def test_a_raising_classifier_is_reported_and_loses_no_usage(virtually: Virtually) -> None:  # noqa: F811
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))
        pool.classifiers = Classifiers()

        def broken(error: Any) -> None:
            raise KeyError("code")

        pool.classifiers.add(broken)

        async def call(ctx: Context) -> None:
            ctx.used({"usage": {"total_tokens": 3}})
            raise ValueError("a bug")

        bench.task(call, pool=pool, retry=Retry(attempts=1))
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        failed = await bench.job(job)
        assert failed.state is State.FAILED
        assert failed.error is not None
        assert failed.error.type == "ValueError"
        problems = [event.problem for event in bench.events_of(FeedbackProblem)]
        assert len(problems) == 2
        assert all("broken raised KeyError" in problem for problem in problems)

    virtually(scenario)


@pytest.mark.parametrize("status", [401, 403])
def test_a_bare_403_closes_an_account_but_no_key(status: int) -> None:
    """One page with a login does not close the key; a provider's own words do."""
    limits = (Limit.requests(1, per=1),)
    reading = read_feedback((status, {}, "no"), now=0)
    assert build_observation("api", PoolSettings(limits=limits), reading).refusal is not None
    assert build_observation("site", PoolSettings(limits=limits, keyed=True), reading, "a").refusal is None
    sure = read_feedback((status, {}, {"error": {"code": "invalid_api_key", "message": "no"}}), now=0)
    assert build_observation("site", PoolSettings(limits=limits, keyed=True), sure, "a").refusal is not None


class VoicesBusy(Exception):
    seconds = 7.0


class PageGone(Exception): ...


def test_the_page_says_what_happens() -> None:
    """The programs of the page run, and its table has a row for every reason."""
    text = page("how-to/classify-errors.md")
    names: dict[str, Any] = {"VoicesBusy": VoicesBusy, "PageGone": PageGone}
    for language, program in code_blocks(text):
        if language == "python":
            exec(program.replace("sqlite:///jobs.db", "memory://"), names)  # noqa: S102 - runs the page's programs
    own = names["app"].classifiers.of("voices")
    busy_reading = read_feedback(VoicesBusy("busy"), now=0, classifiers=own)
    assert busy_reading.refusal == Refusal(reason=Reason.RATE, retry_after=7.0)
    assert read_feedback(PageGone("429"), now=0, classifiers=own).refusal is None
    assert read_feedback(Exception("429"), now=0, classifiers=own).refusal is not None
    tenant = read_feedback(Refused(401), now=0, classifiers=[names["of_tenants"]]).refusal
    assert tenant is not None
    assert not tenant.bare
    assert set(re.findall(r"`([A-Z_]+)`", section(text, "What a reason does"))) == {r.name for r in Reason}
