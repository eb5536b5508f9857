"""Every finished job is delivered once and signed, also if the receiver is down or a worker dies (S16)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Any

import pytest

from tests.notifications.receiver import SECRET, Receiver, advance_time, make_app, run_worker_until_idle
from tidemill import Context, Filter, FinishedJob, GiveUp, Limit, Retry, Secret, State, Tidemill
from tidemill.contract.store import Store
from tidemill.core.documents import DocumentKind
from tidemill.errors import ConfigurationError, WebhookNotFound
from tidemill.notifications import verify, webhook_definitions
from tidemill.notifications.webhook_definitions import DeclaredWebhook, NewWebhook, WebhookEvent
from tidemill.testing import ManualClock
from tidemill.worker import notifier


def an_app_with_feeds(clock: ManualClock) -> Tidemill:
    app = make_app(clock)

    @app.task(name="feeds:refresh", queue="feeds")
    async def refresh(feed: int) -> int:
        if feed == 13:
            raise GiveUp("no such feed")
        return 10 * feed

    return app


async def _send(app: Tidemill, *feeds: int) -> list[str]:
    from tidemill.client.task import Task

    task: Task[Any, Any] = Task(app.client, app.tasks["feeds:refresh"])
    return [(await task.enqueue(feed)).id for feed in feeds]


async def test_a_body_function_defines_the_webhook_s_body_s16(clock: ManualClock, receiver: Receiver) -> None:
    app = an_app_with_feeds(clock)
    app.webhook(
        "reader",
        f"{receiver.url}/hook",
        on=["job.done"],
        tasks=["feeds:refresh"],
        event="feed.refreshed",
        body=lambda job: {"feedId": job.arguments["feed"], "articleCount": job.result},
    )
    async with app:
        await _send(app, 7, 13)
        await run_worker_until_idle(app)
    [got] = receiver.requests
    assert got.path == "/hook"
    assert got.json == {"event": "feed.refreshed", "feedId": 7, "articleCount": 70}
    assert verify(got.body, got.headers, SECRET, clock=clock).id == got.headers["webhook-id"]


async def test_a_webhook_is_known_before_the_first_job_runs(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that finish before a webhook exists are not delivered."""
    app, known, declare = make_app(clock), [], webhook_definitions.declare_webhooks

    async def slowly(store: Store, declared: Mapping[str, DeclaredWebhook]) -> None:
        await asyncio.sleep(0.05)
        await declare(store, declared)

    @app.task(name="look")
    async def look() -> None:
        known.append([view.name for view in await app.webhooks.list()])

    monkeypatch.setattr(webhook_definitions, "declare_webhooks", slowly)
    app.webhook("reader", receiver.url, on=["job.done"])
    async with app:
        await look.enqueue()
        await run_worker_until_idle(app)
    assert known == [["reader"]]
    assert len(receiver.requests) == 1


async def test_the_default_body_has_no_payload_and_no_result(clock: ManualClock, receiver: Receiver) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("all", receiver.url)
    async with app:
        done, failed = await _send(app, 7, 13)
        await run_worker_until_idle(app)
    bodies = {got.json["job"]["id"]: got.json for got in receiver.requests}
    assert {id_: body["event"] for id_, body in bodies.items()} == {done: "job.done", failed: "job.failed"}
    assert bodies[failed]["job"]["error"] == {"type": "GiveUp", "message": "no such feed"}
    assert not {"payload", "arguments", "result"} & {name for body in bodies.values() for name in body["job"]}


async def test_errors_are_sent_without_the_secrets_of_their_jobs(
    clock: ManualClock, receiver: Receiver
) -> None:
    """Body functions also get redacted errors, and the error of a failing body function is redacted too."""
    app = make_app(clock)

    @app.task(name="pay", retry=Retry(attempts=1))
    async def pay(api_key: str, pin: Annotated[str, Secret]) -> None:
        raise GiveUp(f"{api_key} and {pin} are wrong; password=other-canary")

    def refuses(job: FinishedJob) -> None:
        raise ValueError(f"nothing to say of {job.arguments['api_key']}")

    app.webhook("usual", receiver.url, on=["job.failed"])
    app.webhook("own", receiver.url, on=["job.failed"], body=lambda job: {"why": job.error})
    app.webhook("broken", receiver.url, on=["job.failed"], body=refuses)
    async with app:
        await pay.enqueue("canary-7f3a91", "canary-5c")
        await run_worker_until_idle(app)
        broken = await app.inspect.find(Filter(queue="tidemill", states=(State.FAILED,)))
    assert len(receiver.requests) == 2
    for text in (*(str(got.body) for got in receiver.requests), *(repr(job) for job in broken.jobs)):
        assert "canary" not in text
    assert all("[hidden] and [hidden] are wrong" in str(got.body) for got in receiver.requests)


async def test_a_receiver_that_is_down_for_five_minutes_gets_everything_once_s16(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url, on=["job.done"])
    receiver.stop()
    async with app:
        jobs = await _send(app, *range(20))
        await advance_time(app, clock, 300.0, step=30.0)
        [view] = await app.webhooks.list()
        assert (view.waiting, view.failed) == (19, 0)  # feed 13 fails
        receiver.start()
        await advance_time(app, clock, 400.0, step=50.0)
        [view] = await app.webhooks.list()
        assert (view.waiting, view.failed) == (0, 0)
    sent = [got.json["job"]["id"] for got in receiver.requests]
    assert sorted(sent) == sorted(set(jobs) - {jobs[13]})
    for got in receiver.requests:
        verify(got.body, got.headers, SECRET, clock=clock, within=1000)
    assert len({got.headers["webhook-id"] for got in receiver.requests}) == 19


async def test_a_delivery_whose_answer_was_lost_comes_again_with_the_same_id_s16(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url, on=["job.done"])
    receiver.status = 500
    async with app:
        await _send(app, 7)
        await run_worker_until_idle(app)
        receiver.status = 204
        await advance_time(app, clock, 30.0)
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


async def test_deliveries_that_a_dead_worker_did_not_make_are_made_s16(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker died between settling the job and making its deliveries."""
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url, on=["job.done"])
    async with app:
        await run_worker_until_idle(app)
        await _send(app, 1, 2)

        async def dies(*_: object) -> None:
            raise ConnectionError("killed")

        with monkeypatch.context() as dead:
            for verb in ("find", "_create_own_deliveries"):
                dead.setattr(notifier.Notifier, verb, dies)
            with pytest.raises((ConnectionError, ExceptionGroup)):
                await run_worker_until_idle(app)
        assert (await app.inspect.queue("feeds")).counts[State.DONE] == 2
        assert receiver.requests == []
        clock.advance(3600)
        await run_worker_until_idle(app)
        await advance_time(app, clock, 300.0, step=60.0)
    assert sorted(got.json["job"]["state"] for got in receiver.requests) == ["done", "done"]


async def test_a_cancellation_is_sent_and_a_retried_job_is_sent_per_generation(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("all", receiver.url, on=["job.done", "job.failed", "job.cancelled"])
    async with app:
        await run_worker_until_idle(app)
        cancelled, failed = await _send(app, 1, 13)
        await app.inspect.cancel(cancelled)
        await run_worker_until_idle(app)
        await app.inspect.retry(failed)
        await run_worker_until_idle(app)
    sent = [(got.json["event"], got.json["job"]["generation"]) for got in receiver.requests]
    assert sorted(sent) == [("job.cancelled", 0), ("job.failed", 0), ("job.failed", 1)]


async def test_jobs_finished_before_a_webhook_existed_are_not_sent(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    async with app:
        await _send(app, 1)
        await run_worker_until_idle(app)
        clock.advance(1)
        await app.webhooks.add(NewWebhook(name="late", url=receiver.url), by="ann")
        await _send(app, 2)
        await run_worker_until_idle(app)
    assert len(receiver.requests) == 1


async def test_finished_jobs_are_sent_after_the_wall_clock_was_set_back(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    async with app:
        await app.webhooks.add(
            NewWebhook(name="all", url=receiver.url, on=(WebhookEvent.JOB_CANCELLED,)), by="ann"
        )
        await run_worker_until_idle(app)
        clock.step_wall(-86_400)
        [job] = await _send(app, 1)
        await app.inspect.cancel(job)
        await run_worker_until_idle(app)
    assert len(receiver.requests) == 1


async def test_the_end_of_a_selected_flow_is_sent_once(clock: ManualClock, receiver: Receiver) -> None:
    app = make_app(clock)

    @app.task
    async def one(number: int) -> int:
        return number

    app.webhook("flows", receiver.url, on=["flow.ended"], flows=["dub"])
    async with app:
        for name in ("dub", "other"):
            flow = app.flow(name, key="7")
            flow.add(one, number=flow.add(one, number=1))
            await flow.enqueue()
        await run_worker_until_idle(app)
    assert [got.json["flow"] | {"created": 0} for got in receiver.requests] == [
        {"id": "dub/7", "name": "dub", "state": "done", "created": 0}
    ]


async def test_pools_closed_and_opened_by_an_operator_are_sent(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = make_app(clock)
    app.pool("gemini", Limit.requests(10, per="minute"))
    app.pool("quiet", Limit.requests(10, per="minute"))
    app.webhook("pools", receiver.url, on=["pool.closed", "pool.opened"], pools=["gemini"])
    async with app:
        await run_worker_until_idle(app)
        for pool in ("gemini", "quiet"):
            await app.inspect.close_pool(pool, by="ann", reason="too dear")
        await run_worker_until_idle(app)
        await run_worker_until_idle(app)
        await app.inspect.open_pool("gemini")
        await run_worker_until_idle(app)
    assert [(got.json["event"], got.json["pool"]["name"]) for got in receiver.requests] == [
        ("pool.closed", "gemini"),
        ("pool.opened", "gemini"),
    ]


async def test_words_that_raise_make_a_failed_delivery_that_says_why(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url, on=["job.done"], body=lambda job: {"title": job.result["title"]})
    async with app:
        await _send(app, 7)
        await run_worker_until_idle(app)
        [job] = (await app.inspect.find(Filter(queue="tidemill", states=(State.FAILED,)))).jobs
    assert job.error is not None
    assert "could not be said: TypeError" in job.error.message
    assert receiver.requests == []


async def test_an_address_that_may_not_be_called_fails_at_once_and_says_what_to_do(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMILL_WEBHOOKS_ALLOW")
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url)
    async with app:
        await _send(app, 7)
        await run_worker_until_idle(app)
        [job] = (await app.inspect.find(Filter(queue="tidemill"))).jobs
    assert (job.state, job.attempts) == (State.FAILED, 1)
    assert job.error is not None
    assert "webhooks.allow" in job.error.message
    assert receiver.requests == []


async def test_a_failing_receiver_takes_few_slots_and_its_url_is_not_shown(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("reader", f"{receiver.url}/hook?token=abc", on=["job.done"])
    receiver.status = 500
    async with app:
        await _send(app, 1, 2)
        await run_worker_until_idle(app)
        [info] = [info for info in await app.store.queues() if info.name == "tidemill"]
        assert info.settings.key_concurrency == 4
        for job in (await app.inspect.find(Filter(queue="tidemill"))).jobs:
            assert job.error is not None
            assert job.error.message == "127.0.0.1 answered 500"
            assert "abc" not in repr(job)


@pytest.mark.parametrize(
    ("status", "headers", "follows"),
    [
        (410, {}, (State.FAILED, None)),
        (503, {"Retry-After": "120"}, (State.SCHEDULED, 120)),
        (302, {"Location": "https://elsewhere.example"}, (State.SCHEDULED, 5)),
    ],
)
async def test_the_receiver_s_status_decides_between_retry_and_failure(
    clock: ManualClock,
    receiver: Receiver,
    status: int,
    headers: dict[str, str],
    follows: tuple[State, float | None],
) -> None:
    receiver.status, receiver.headers = status, headers
    state, wait = follows
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url)
    async with app:
        await _send(app, 7)
        await run_worker_until_idle(app)
        [job] = (await app.inspect.find(Filter(queue="tidemill"))).jobs
    assert job.state is state
    assert wait is None or wait <= job.due - clock.wall() <= 1.2 * wait


async def test_nothing_is_sent_unsigned(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEBHOOK_SECRET")
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url, on=["job.done"])
    async with app:
        await _send(app, 7)
        await run_worker_until_idle(app)
        assert receiver.requests == []
        monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
        await advance_time(app, clock, 30.0)
    assert len(receiver.requests) == 1


async def test_webhooks_are_added_looked_at_tested_and_removed(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    async with app:
        made = await app.webhooks.add(NewWebhook(name="a", url=receiver.url, queues=("feeds",)), by="ann")
        assert (made.by, made.origin, made.waiting) == ("ann", "added", 0)
        job = await app.webhooks.test("a")
        await run_worker_until_idle(app)
        assert [got.json for got in receiver.requests] == [{"event": "test", "webhook": "a"}]
        assert receiver.requests[0].headers["webhook-id"] == job
        await app.webhooks.test("a")
        assert await app.webhooks.remove("a")
        assert not await app.webhooks.remove("a")
        with pytest.raises(WebhookNotFound, match="no webhook 'a'"):
            await app.webhooks.get("a")
        [waited] = (await app.inspect.find(Filter(queue="tidemill", states=(State.CANCELLED,)))).jobs
        assert waited.reason == "the webhook was removed"
        await run_worker_until_idle(app)
        assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"url": "ftp://x"}, "url: must begin with https"),
        ({"secret": "DATABASE_URL"}, "secret: must name a variable that begins with WEBHOOK_SECRET"),
        ({"name": ""}, "name: must have 1 to 200"),
        ({"on": ()}, "on: must name at least one of job.done"),
        ({"queues": ("",)}, "queues: must have 1 to 200"),
    ],
)
async def test_an_invalid_webhook_is_refused_with_its_field(
    clock: ManualClock, change: dict[str, Any], problem: str
) -> None:
    app = make_app(clock)
    fields: dict[str, Any] = {"name": "a", "url": "https://x.example/"} | change
    async with app:
        with pytest.raises(ConfigurationError, match=re.escape(problem)):
            await app.webhooks.add(NewWebhook(**fields), by="ann")
        store: Store = app.store
        assert (await store.find_documents(DocumentKind.RECORD)).documents == ()
    if fields["name"]:
        with pytest.raises(ConfigurationError, match=re.escape(problem)):
            app.webhook(**fields)


@pytest.mark.parametrize("host", ["10.0.0.7", "2130706433", "0x7f.1", "[::1]", "169.254.169.254"])
async def test_a_private_address_is_refused_when_a_webhook_is_added(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    inside = NewWebhook(name="a", url=f"http://{host}/hook")
    async with make_app(clock) as app:
        with pytest.raises(ConfigurationError, match=r"url: .* is not public; .* webhooks\.allow"):
            await app.webhooks.add(inside, by="ann")
        assert await app.webhooks.list() == []
        assert await app.webhooks.add(NewWebhook(name="b", url="http://inside.example/"), by="ann")
    monkeypatch.setenv("TIDEMILL_WEBHOOKS_ALLOW", host.strip("[]"))
    async with make_app(clock) as app:
        assert (await app.webhooks.add(inside, by="ann")).url == inside.url


async def test_a_declared_webhook_cannot_be_changed_by_a_call(clock: ManualClock, receiver: Receiver) -> None:
    app = make_app(clock)
    app.webhook("a", receiver.url)
    async with app:
        await run_worker_until_idle(app)
        with pytest.raises(ConfigurationError, match="code declares it"):
            await app.webhooks.add(NewWebhook(name="a", url="https://evil.example"), by="ann")
        [view] = await app.webhooks.list()
        assert (view.url, view.origin) == (receiver.url, "declared")


async def test_a_kit_sends_no_webhook(receiver: Receiver) -> None:
    """The test kit of an application does not call the application's receivers."""
    from tidemill import testing

    app = Tidemill("memory://")

    @app.task
    async def one(ctx: Context) -> None: ...

    app.webhook("a", receiver.url)
    async with testing.kit(app) as kit:
        await one.enqueue()
        await kit.run_for(60)
        assert "tidemill" not in await app.store.counts()
    assert receiver.requests == []
