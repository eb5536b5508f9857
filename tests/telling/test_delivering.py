"""What ends is told: once each, signed, and also when the receiver is down or a worker dies (S16)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Any

import pytest

from tests.telling.support import SECRET, Receiver, an_app, pass_time, work
from tidemill import Context, Ended, Filter, GiveUp, Limit, Retry, Secret, State, Tidemill
from tidemill.contract.store import Store
from tidemill.core.courses import Kind
from tidemill.errors import ConfigurationError, WebhookNotFound
from tidemill.telling import keeping, verify
from tidemill.telling.webhook import Declared, NewWebhook, What
from tidemill.testing import ManualClock
from tidemill.worker import teller


def an_app_with_feeds(clock: ManualClock) -> Tidemill:
    app = an_app(clock)

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


async def test_a_task_says_what_is_told_of_it_s16(clock: ManualClock, receiver: Receiver) -> None:
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
        await work(app)
    [got] = receiver.got
    assert got.path == "/hook"
    assert got.json == {"event": "feed.refreshed", "feedId": 7, "articleCount": 70}
    assert verify(got.body, got.headers, SECRET, clock=clock).id == got.headers["webhook-id"]


async def test_a_webhook_is_known_before_the_first_job_runs(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends before is never told."""
    app, known, declare = an_app(clock), [], keeping.declare

    async def slowly(store: Store, declared: Mapping[str, Declared]) -> None:
        await asyncio.sleep(0.05)
        await declare(store, declared)

    @app.task(name="look")
    async def look() -> None:
        known.append([view.name for view in await app.webhooks.list()])

    monkeypatch.setattr(keeping, "declare", slowly)
    app.webhook("reader", receiver.url, on=["job.done"])
    async with app:
        await look.enqueue()
        await work(app)
    assert known == [["reader"]]
    assert len(receiver.got) == 1


async def test_without_words_of_its_own_no_payload_or_result_is_told(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("all", receiver.url)
    async with app:
        done, failed = await _send(app, 7, 13)
        await work(app)
    told = {got.json["job"]["id"]: got.json for got in receiver.got}
    assert {id_: body["event"] for id_, body in told.items()} == {done: "job.done", failed: "job.failed"}
    assert told[failed]["job"]["error"] == {"type": "GiveUp", "message": "no such feed"}
    assert not {"payload", "arguments", "result"} & {name for body in told.values() for name in body["job"]}


async def test_errors_are_told_without_the_secrets_of_their_jobs(
    clock: ManualClock, receiver: Receiver
) -> None:
    """Also to words of the application's own, which get the error, and when those fail."""
    app = an_app(clock)

    @app.task(name="pay", retry=Retry(attempts=1))
    async def pay(api_key: str, pin: Annotated[str, Secret]) -> None:
        raise GiveUp(f"{api_key} and {pin} are wrong; password=other-canary")

    def refuses(job: Ended) -> None:
        raise ValueError(f"nothing to say of {job.arguments['api_key']}")

    app.webhook("usual", receiver.url, on=["job.failed"])
    app.webhook("own", receiver.url, on=["job.failed"], body=lambda job: {"why": job.error})
    app.webhook("broken", receiver.url, on=["job.failed"], body=refuses)
    async with app:
        await pay.enqueue("canary-7f3a91", "canary-5c")
        await work(app)
        broken = await app.inspect.find(Filter(queue="tidemill", states=(State.FAILED,)))
    assert len(receiver.got) == 2
    for said in (*(str(got.body) for got in receiver.got), *(repr(job) for job in broken.jobs)):
        assert "canary" not in said
    assert all("[hidden] and [hidden] are wrong" in str(got.body) for got in receiver.got)


async def test_a_receiver_that_is_down_for_five_minutes_gets_everything_once_s16(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url, on=["job.done"])
    receiver.stop()
    async with app:
        jobs = await _send(app, *range(20))
        await pass_time(app, clock, 300.0, step=30.0)
        [view] = await app.webhooks.list()
        assert (view.waiting, view.failed) == (19, 0)  # feed 13 is not done
        receiver.start()
        await pass_time(app, clock, 400.0, step=50.0)
        [view] = await app.webhooks.list()
        assert (view.waiting, view.failed) == (0, 0)
    told = [got.json["job"]["id"] for got in receiver.got]
    assert sorted(told) == sorted(set(jobs) - {jobs[13]})
    for got in receiver.got:
        verify(got.body, got.headers, SECRET, clock=clock, within=1000)
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 19


async def test_a_delivery_whose_answer_was_lost_comes_again_with_the_same_id_s16(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url, on=["job.done"])
    receiver.status = 500
    async with app:
        await _send(app, 7)
        await work(app)
        receiver.status = 204
        await pass_time(app, clock, 30.0)
    first, second = receiver.got
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


async def test_what_a_worker_ended_and_did_not_tell_is_found_s16(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between the settlement and all that follows."""
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url, on=["job.done"])
    async with app:
        await work(app)
        await _send(app, 1, 2)

        async def dies(*_: object) -> None:
            raise ConnectionError("killed")

        with monkeypatch.context() as dead:
            for verb in ("find", "_tell_ended"):
                dead.setattr(teller.Teller, verb, dies)
            with pytest.raises((ConnectionError, ExceptionGroup)):
                await work(app)
        assert (await app.inspect.queue("feeds")).counts[State.DONE] == 2
        assert receiver.got == []
        clock.advance(3600)
        await work(app)
        await pass_time(app, clock, 300.0, step=60.0)
    assert sorted(got.json["job"]["state"] for got in receiver.got) == ["done", "done"]


async def test_who_cancels_a_job_is_told_of_as_well_and_a_retry_ends_anew(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("all", receiver.url, on=["job.done", "job.failed", "job.cancelled"])
    async with app:
        await work(app)
        cancelled, failed = await _send(app, 1, 13)
        await app.inspect.cancel(cancelled)
        await work(app)
        await app.inspect.retry(failed)
        await work(app)
    told = [(got.json["event"], got.json["job"]["generation"]) for got in receiver.got]
    assert sorted(told) == [("job.cancelled", 0), ("job.failed", 0), ("job.failed", 1)]


async def test_of_what_ended_before_a_webhook_was_made_nothing_is_told(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    async with app:
        await _send(app, 1)
        await work(app)
        clock.advance(1)
        await app.webhooks.add(NewWebhook(name="late", url=receiver.url), by="ann")
        await _send(app, 2)
        await work(app)
    assert len(receiver.got) == 1


async def test_ends_are_told_though_the_wall_clock_was_set_back(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    async with app:
        await app.webhooks.add(NewWebhook(name="all", url=receiver.url, on=(What.JOB_CANCELLED,)), by="ann")
        await work(app)
        clock.step_wall(-86_400)
        [job] = await _send(app, 1)
        await app.inspect.cancel(job)
        await work(app)
    assert len(receiver.got) == 1


async def test_the_end_of_a_flow_is_told_in_the_step_that_ends_it(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app(clock)

    @app.task
    async def one(number: int) -> int:
        return number

    app.webhook("flows", receiver.url, on=["flow.ended"], flows=["dub"])
    async with app:
        for name in ("dub", "other"):
            flow = app.flow(name, key="7")
            flow.add(one, number=flow.add(one, number=1))
            await flow.enqueue()
        await work(app)
    assert [got.json["flow"] | {"created": 0} for got in receiver.got] == [
        {"id": "dub/7", "name": "dub", "state": "done", "created": 0}
    ]


async def test_pools_that_close_and_open_are_told_also_by_hand(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app(clock)
    app.pool("gemini", Limit.requests(10, per="minute"))
    app.pool("quiet", Limit.requests(10, per="minute"))
    app.webhook("pools", receiver.url, on=["pool.closed", "pool.opened"], pools=["gemini"])
    async with app:
        await work(app)
        for pool in ("gemini", "quiet"):
            await app.inspect.close_pool(pool, by="ann", reason="too dear")
        await work(app)
        await work(app)
        await app.inspect.open_pool("gemini")
        await work(app)
    assert [(got.json["event"], got.json["pool"]["name"]) for got in receiver.got] == [
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
        await work(app)
        [job] = (await app.inspect.find(Filter(queue="tidemill", states=(State.FAILED,)))).jobs
    assert job.error is not None
    assert "could not be said: TypeError" in job.error.message
    assert receiver.got == []


async def test_an_address_that_may_not_be_called_fails_at_once_and_says_what_to_do(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMILL_WEBHOOKS_ALLOW")
    app = an_app_with_feeds(clock)
    app.webhook("reader", receiver.url)
    async with app:
        await _send(app, 7)
        await work(app)
        [job] = (await app.inspect.find(Filter(queue="tidemill"))).jobs
    assert (job.state, job.attempts) == (State.FAILED, 1)
    assert job.error is not None
    assert "webhooks.allow" in job.error.message
    assert receiver.got == []


async def test_a_receiver_that_does_not_answer_takes_few_slots_and_its_address_is_not_told(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    app.webhook("reader", f"{receiver.url}/hook?token=abc", on=["job.done"])
    receiver.status = 500
    async with app:
        await _send(app, 1, 2)
        await work(app)
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
async def test_what_a_receiver_answers_decides_what_follows(
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
        await work(app)
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
        await work(app)
        assert receiver.got == []
        monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
        await pass_time(app, clock, 30.0)
    assert len(receiver.got) == 1


async def test_webhooks_are_added_looked_at_tested_and_removed(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_with_feeds(clock)
    async with app:
        made = await app.webhooks.add(NewWebhook(name="a", url=receiver.url, queues=("feeds",)), by="ann")
        assert (made.by, made.origin, made.waiting) == ("ann", "added", 0)
        job = await app.webhooks.test("a")
        await work(app)
        assert [got.json for got in receiver.got] == [{"event": "test", "webhook": "a"}]
        assert receiver.got[0].headers["webhook-id"] == job
        await app.webhooks.test("a")
        assert await app.webhooks.remove("a")
        assert not await app.webhooks.remove("a")
        with pytest.raises(WebhookNotFound, match="no webhook 'a'"):
            await app.webhooks.get("a")
        [waited] = (await app.inspect.find(Filter(queue="tidemill", states=(State.CANCELLED,)))).jobs
        assert waited.reason == "the webhook was removed"
        await work(app)
        assert len(receiver.got) == 1


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
async def test_what_cannot_be_a_webhook_is_refused_naming_the_field(
    clock: ManualClock, change: dict[str, Any], problem: str
) -> None:
    app = an_app(clock)
    fields: dict[str, Any] = {"name": "a", "url": "https://x.example/"} | change
    async with app:
        with pytest.raises(ConfigurationError, match=re.escape(problem)):
            await app.webhooks.add(NewWebhook(**fields), by="ann")
        store: Store = app.store
        assert (await store.find_courses(Kind.RECORD)).courses == ()
    if fields["name"]:
        with pytest.raises(ConfigurationError, match=re.escape(problem)):
            app.webhook(**fields)


@pytest.mark.parametrize("host", ["10.0.0.7", "2130706433", "0x7f.1", "[::1]", "169.254.169.254"])
async def test_an_address_inside_is_refused_when_somebody_adds_it(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    inside = NewWebhook(name="a", url=f"http://{host}/hook")
    async with an_app(clock) as app:
        with pytest.raises(ConfigurationError, match=r"url: .* is not public; .* webhooks\.allow"):
            await app.webhooks.add(inside, by="ann")
        assert await app.webhooks.list() == []
        assert await app.webhooks.add(NewWebhook(name="b", url="http://inside.example/"), by="ann")
    monkeypatch.setenv("TIDEMILL_WEBHOOKS_ALLOW", host.strip("[]"))
    async with an_app(clock) as app:
        assert (await app.webhooks.add(inside, by="ann")).url == inside.url


async def test_what_code_declares_is_not_changed_by_a_call(clock: ManualClock, receiver: Receiver) -> None:
    app = an_app(clock)
    app.webhook("a", receiver.url)
    async with app:
        await work(app)
        with pytest.raises(ConfigurationError, match="code declares it"):
            await app.webhooks.add(NewWebhook(name="a", url="https://evil.example"), by="ann")
        [view] = await app.webhooks.list()
        assert (view.url, view.origin) == (receiver.url, "declared")


async def test_a_kit_tells_nobody_outside(receiver: Receiver) -> None:
    """A test of an application's own does not call those whom the application calls."""
    from tidemill import testing

    app = Tidemill("memory://")

    @app.task
    async def one(ctx: Context) -> None: ...

    app.webhook("a", receiver.url)
    async with testing.kit(app) as kit:
        await one.enqueue()
        await kit.run_for(60)
        assert "tidemill" not in await app.store.counts()
    assert receiver.got == []
