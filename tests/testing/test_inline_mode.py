"""Inline mode: the handler runs where its job is enqueued."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.testing.shop_app import Mail, app, broken, later, once, receipt, refund
from tidemill import (
    ConfigurationError,
    Context,
    CurrentAttempt,
    JobFailed,
    State,
    Tidemill,
    current_attempt,
    testing,
)


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables sleeps: the handlers of the shop sleep for half a minute, and inline mode has no virtual
    time."""
    real = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: real(0))


def test_enqueue_sync_runs_the_handler() -> None:
    mail = Mail()
    with testing.inline(app, state=mail) as kit:
        job = receipt.enqueue_sync(7)
        assert mail.sent == [7]
        assert job.result_sync(timeout=1) == kit.result(job) == "1 sent"
        assert kit.log(job) == ["attempt 1"]
        kit.assert_enqueued(receipt, 7)


async def test_enqueue_runs_the_handler() -> None:
    mail = Mail()
    with testing.inline(app, state=mail) as kit:
        job = await receipt.using(delay=3600).enqueue(7)
        assert mail.sent == [7]
        assert await job.result(timeout=1) == kit.result(job) == "1 sent"


def test_a_handler_that_enqueues_runs_what_it_enqueued() -> None:
    mail = Mail()
    with testing.inline(app, state=mail) as kit:
        refund.enqueue_sync(7)
        assert mail.sent == [7]
        assert [job.state for job in kit.enqueued()] == [State.DONE, State.DONE]


async def test_also_from_an_async_test() -> None:
    mail = Mail()
    with testing.inline(app, state=mail):
        await refund.enqueue(7)
        refund.enqueue_sync(8)
    assert mail.sent == [7, 8]


async def test_many_run_in_their_order() -> None:
    mail = Mail()
    with testing.inline(app, state=mail):
        await app.enqueue_many(receipt.job(order) for order in range(3))
        await asyncio.to_thread(app.enqueue_many_sync, [receipt.job(3)])
    assert mail.sent == [0, 1, 2, 3]


def test_an_error_is_the_callers() -> None:
    with testing.inline(app) as kit:
        with pytest.raises(ValueError, match="order 7 is broken"):
            broken.enqueue_sync(7)
        assert [job.state for job in kit.enqueued(broken)] == [State.FAILED]


def test_there_are_no_retries() -> None:
    with testing.inline(app, state=Mail(fails=1)), pytest.raises(OSError, match="no connection for order 7"):
        receipt.enqueue_sync(7)


async def test_an_error_can_be_kept_with_the_job() -> None:
    with testing.inline(app, errors="store"):
        job = await broken.enqueue(7)
        with pytest.raises(JobFailed, match="order 7 is broken"):
            await job.result(timeout=1)


def test_not_now_is_no_error() -> None:
    with testing.inline(app) as kit:
        job = later.enqueue_sync()
        assert kit.job(job).state is State.SCHEDULED


def test_a_unique_job_runs_again_once_the_first_has_ended() -> None:
    with testing.inline(app) as kit:
        once.enqueue_sync()
        assert not once.enqueue_sync().existing
        assert len(kit.enqueued(once)) == 2


def test_middleware_and_lifespan_are_around_the_handler() -> None:
    app, seen = Tidemill("memory://"), list[str]()

    @app.middleware
    async def around(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
        seen.append(f"before {ctx.task}")
        result = await run()
        seen.append("after")
        return result

    @app.task(name="handler")
    def handler() -> None:
        seen.append("handler")

    with testing.inline(app):
        handler.enqueue_sync()
    assert seen == ["before handler", "handler", "after"]


def test_afterwards_nothing_runs_inline() -> None:
    with testing.inline(app):
        pass
    with testing.kit(app) as kit:
        job = refund.enqueue_sync(7)
        assert kit.job(job).state is State.READY


def test_a_wrong_way_to_treat_errors_is_refused() -> None:
    with pytest.raises(ConfigurationError, match='errors: must be "raise" or "store", is \'keep\''):
        testing.inline(app, errors="keep")  # type: ignore[arg-type]


def test_waiting_for_what_could_not_start_fails_at_once() -> None:
    with testing.inline(app):
        receipt.enqueue_sync(1)
        app.run_sync(app.inspect.pause("mail"))
        job = receipt.enqueue_sync(2)
        with pytest.raises(testing.JobNotRun, match=r"order=2.*ready on queue 'mail'"):
            job.result_sync()


@pytest.mark.parametrize("how", ["plain", "async"])
def test_lines_a_handler_logs_say_which_job_wrote_them(how: str) -> None:
    inner = Tidemill("memory://")
    seen: list[CurrentAttempt | None] = []

    async def looks() -> None:
        seen.append(current_attempt())

    def looks_too() -> None:
        seen.append(current_attempt())

    task = inner.task(looks if how == "async" else looks_too)
    with testing.inline(inner):
        job = task.enqueue_sync()
    assert [one and (one.job, one.attempt) for one in seen] == [(job.id, 1)]
    assert current_attempt() is None


@pytest.mark.parametrize("errors", ["raise", "store"])
def test_a_handler_that_exits_leaves_no_job_running(errors: Any) -> None:
    app = Tidemill("memory://")

    @app.task(name="leaves")
    def leaves() -> None:
        raise SystemExit(3)

    with testing.inline(app, errors=errors) as kit:
        with pytest.raises(SystemExit) if errors == "raise" else nullcontext():
            leaves.enqueue_sync()
        assert [job.state for job in kit.enqueued()] == [State.FAILED]


def test_an_interrupt_is_the_persons_at_the_keyboard() -> None:
    app = Tidemill("memory://")

    @app.task(name="interrupted")
    def interrupted() -> None:
        raise KeyboardInterrupt

    with testing.inline(app, errors="store") as kit:
        with pytest.raises(KeyboardInterrupt):
            interrupted.enqueue_sync()
        assert [job.state for job in kit.enqueued()] == [State.FAILED]
