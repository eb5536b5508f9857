"""Alerts from a real store to the message: each is sent once by all workers, with its dashboard page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notifications.mail_server import Mailbox, MailServer
from tests.notifications.receiver import Receiver, advance_time, make_app, run_worker_until_idle, wait_until
from tests.servers.program import free_port
from tidemill import Filter, GiveUp, Limit, State, Tidemill
from tidemill.contract.store import Store
from tidemill.core.claims import Heartbeat
from tidemill.core.documents import Advance, DocumentKind, DocumentUpdate
from tidemill.notifications import alerts as rounds
from tidemill.notifications.alert_channels import EmailChannel, SlackChannel
from tidemill.notifications.alert_messages import dashboard_path
from tidemill.notifications.alert_rules import ALERT_DOCUMENT, ALERT_DOCUMENT_ID, Alert, AlertKind, AlertStage
from tidemill.telemetry.events import MaintenanceCrashed
from tidemill.testing import ManualClock


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    mailbox, port = Mailbox(), free_port()
    server = MailServer(mailbox, port)
    server.start()
    monkeypatch.setenv("TIDEMILL_ALERTS_SMTP_URL", f"smtp://127.0.0.1:{port}")
    monkeypatch.setenv("TIDEMILL_ALERTS_EMAIL_TO", "ops@feeds.example")
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", "https://jobs.feeds.example/tidemill")
    yield mailbox
    server.stop()


def an_app_that_alerts(clock: ManualClock) -> Tidemill:
    app = make_app(clock)

    @app.task(name="fetch", queue="feeds/eu")
    async def fetch(fails: bool) -> None:
        if fails:
            raise GiveUp("gone")

    return app


async def _send(app: Tidemill, *, fails: bool, count: int = 1, delay: float = 0.0) -> None:
    from tidemill.client.task import Task

    task: Task[[bool], None] = Task(app.client, app.tasks["fetch"])
    await app.enqueue_many([task.using(delay=delay).job(fails) for _ in range(count)])


async def evaluate_alerts_for(app: Tidemill, clock: ManualClock, seconds: float) -> None:
    """Evaluates the alerts every 15 seconds, as the leader does."""
    while seconds > 0:
        clock.advance(15)
        seconds -= 15
        await rounds.evaluate_alerts(app.store, app.notifications)


async def test_an_e_mail_says_what_where_since_when_and_has_the_link_q12_e13_v7(
    clock: ManualClock, mailbox: Mailbox
) -> None:
    app = an_app_that_alerts(clock)
    async with app:
        await _send(app, fails=True, count=3)
        await run_worker_until_idle(app)
        await evaluate_alerts_for(app, clock, 60)
        [alert] = await app.alerts.states()
        assert (alert.rule, alert.subject, alert.value, alert.stage) == (
            "dead letters",
            "feeds/eu",
            3.0,
            "raised",
        )
        await run_worker_until_idle(app)
    [message] = mailbox.messages
    assert message["subject"] == "[Tidemill] queue feeds/eu: 3 jobs failed for good"
    assert message.get_content().splitlines() == [
        "queue feeds/eu: 3 jobs failed for good (more than 0)",
        "Rule: dead letters",
        "Since: 2023-11-14 22:13:35 UTC",
        "Look: https://jobs.feeds.example/tidemill/dead-letters?queue=feeds%2Feu",
        "",
        "Store: a store of the program's own",
    ]


async def test_a_mail_server_that_is_down_gets_it_later_and_once(
    clock: ManualClock, receiver: Receiver
) -> None:
    app = an_app_that_alerts(clock)
    app.notifications.channels = {"slack": SlackChannel(receiver.url)}
    receiver.stop()
    async with app:
        await _send(app, fails=True)
        await run_worker_until_idle(app)
        await evaluate_alerts_for(app, clock, 60)
        await advance_time(app, clock, 60)
        receiver.status, receiver.reply_body = 200, b"ok"
        receiver.start()
        await advance_time(app, clock, 120)
    assert len(receiver.requests) == 1


async def test_two_who_look_at_once_say_it_once(clock: ManualClock, mailbox: Mailbox) -> None:
    app = an_app_that_alerts(clock)
    app.notifications.digest = 0.0
    async with app:
        await _send(app, fails=True)
        await run_worker_until_idle(app)
        store: Store = app.store
        first = await rounds.load_alert_state(store)

        async def as_it_was(_: Store) -> object:
            return first

        with pytest.MonkeyPatch.context() as both:
            both.setattr(rounds, "load_alert_state", as_it_was)
            made = [(await rounds.evaluate_alerts(store, app.notifications)).made for _ in range(2)]
        await run_worker_until_idle(app)
    assert made == [1, 0]
    assert len(mailbox.messages) == 1


async def test_queue_length_age_and_failure_ratio_are_measured_q12(clock: ManualClock) -> None:
    app = an_app_that_alerts(clock)
    app.notifications.channels = {
        "email": EmailChannel.at("smtp://mail.example", "a@b.example", ("c@d.example",))
    }
    app.alert("long", on="queue_length", above=4)
    app.alert("late", on="oldest_job", above=20, queue="feeds/eu")
    app.alert("failing", on="failure_ratio", above=0.4)
    app.alert("elsewhere", on="queue_length", above=0, queue="mail")
    async with app:
        await _send(app, fails=False, count=6)
        await run_worker_until_idle(app)
        await _send(app, fails=True, count=6)
        await run_worker_until_idle(app)
        await _send(app, fails=False, count=3)
        await _send(app, fails=False, count=2, delay=3600)
        await evaluate_alerts_for(app, clock, 45)
        found = {alert.rule: alert.value for alert in await app.alerts.states()}
    assert found == {"long": 5.0, "late": 45.0, "failing": 0.5}


async def test_a_pool_closed_for_too_long_raises_an_alert_that_ends_when_it_opens(
    clock: ManualClock, mailbox: Mailbox
) -> None:
    app = make_app(clock)
    app.pool("gemini", Limit.requests(1, per="minute"))
    app.alert("closed", on="pool_closed", above=120)
    async with app:
        await run_worker_until_idle(app)
        await app.inspect.close_pool("gemini", by="ann")
        await evaluate_alerts_for(app, clock, 120)
        assert await app.alerts.states() == []
        await evaluate_alerts_for(app, clock, 60)
        await app.inspect.open_pool("gemini")
        await evaluate_alerts_for(app, clock, 60)
        await run_worker_until_idle(app)
    titles = sorted(str(message["subject"]) for message in mailbox.messages)
    assert titles == [
        "[Tidemill] pool gemini: closed for 0 s (over)",
        "[Tidemill] pool gemini: closed for 2 min",
    ]
    assert all("/pools/gemini" in message.get_content() for message in mailbox.messages)


async def test_a_silent_worker_raises_an_alert_and_a_stopped_one_does_not(clock: ManualClock) -> None:
    app = make_app(clock)
    app.alert("gone", on="worker_gone")
    async with app:
        await app.store.extend(Heartbeat(worker="dies", received=0, lease=30, queues=("default",)))
        await run_worker_until_idle(app)  # a worker that starts, evaluates and stops
        await evaluate_alerts_for(app, clock, 45)
        await evaluate_alerts_for(app, clock, 15)
        found = [(alert.subject, alert.stage) for alert in await app.alerts.states()]
    assert found == [("dies", "raised")]


async def test_an_application_s_own_measurement_raises_alerts(clock: ManualClock, mailbox: Mailbox) -> None:
    app = make_app(clock)
    unread = {"inbox": 3.0}

    async def measure() -> dict[str, float]:
        return unread

    app.alert("unread", on=measure, above=10)
    app.alert("plain", on=lambda: 5, above=10)
    app.notifications.digest = 0.0
    async with app:
        await evaluate_alerts_for(app, clock, 15)
        unread["inbox"] = 12
        await evaluate_alerts_for(app, clock, 15)
        await run_worker_until_idle(app)
    assert [message["subject"] for message in mailbox.messages] == ["[Tidemill] unread inbox: 12"]


async def test_a_measure_that_raises_silences_no_other_rule(clock: ManualClock, mailbox: Mailbox) -> None:
    app = an_app_that_alerts(clock)
    app.alert("broken", on=lambda: 1 / 0, above=10)
    app.alert("failed", on="dead_letters")
    app.notifications.digest = 0.0
    broken: list[MaintenanceCrashed] = []
    app.on(MaintenanceCrashed)(broken.append)
    async with app:
        app.notifications.every = 0.02
        worker = app.worker(lead_every=0.05)
        running = asyncio.create_task(worker.run())
        await wait_until(lambda: len(broken) == 1)
        await _send(app, fails=True)
        await wait_until(lambda: len(mailbox.messages) == 1)
        worker.stop()
        await running
    assert [event.operation for event in broken] == ["alert broken"]  # it fails each time


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_a_measure_that_is_no_number_spoils_no_book(clock: ManualClock, number: float) -> None:
    app = an_app_that_alerts(clock)
    app.alert("odd", on=lambda: {"a": number}, above=10)
    app.alert("failed", on="dead_letters")
    async with app:
        await _send(app, fails=True)
        await run_worker_until_idle(app)
        await evaluate_alerts_for(app, clock, 15)
        assert [alert.rule for alert in await app.alerts.states()] == ["failed"]


async def test_an_unreadable_alert_document_is_replaced(clock: ManualClock) -> None:
    app = an_app_that_alerts(clock)
    app.alert("failed", on="dead_letters")
    async with app:
        strange = DocumentUpdate(name=ALERT_DOCUMENT, state="kept", record=b'{"alerts": 3}')
        await app.store.advance(
            [Advance(kind=DocumentKind.RECORD, id=ALERT_DOCUMENT_ID, expected=0, next=strange)]
        )
        await _send(app, fails=True)
        await run_worker_until_idle(app)
        await evaluate_alerts_for(app, clock, 15)
        assert [alert.rule for alert in await app.alerts.states()] == ["failed"]


async def test_a_message_that_could_not_be_sent_is_no_alert_and_a_delivery_is(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alert about a failed message would create further failed messages for ever."""
    monkeypatch.setenv("TIDEMILL_ALERTS_SLACK_URL", f"{receiver.url}/slack")
    receiver.status = 500
    app = an_app_that_alerts(clock)
    app.alert("failed", on="dead_letters", queue="feeds/eu")
    app.alert("ours failed", on="dead_letters", queue="tidemill")
    app.notifications.digest, app.notifications.repeat = 0.0, 60.0
    async with app:
        await _send(app, fails=True)
        await run_worker_until_idle(app)
        await evaluate_alerts_for(app, clock, 15)
        await advance_time(app, clock, 7200, step=300)
        await evaluate_alerts_for(app, clock, 15)
        jobs = (await app.inspect.find(Filter(queue="tidemill"))).jobs
        assert {job.state for job in jobs} == {State.FAILED}
        assert [alert.rule for alert in await app.alerts.states()] == []
        receiver.status = 410
        app.webhook("gone", receiver.url, on=["job.failed"])
        await run_worker_until_idle(app)
        await _send(app, fails=True)
        await run_worker_until_idle(app)
        await evaluate_alerts_for(app, clock, 15)
        assert "ours failed" in [alert.rule for alert in await app.alerts.states()]


async def test_a_worker_that_stops_before_it_was_listed_is_not_lost(clock: ManualClock) -> None:
    """A leader may have read the worker list before the worker stopped."""
    app = make_app(clock)
    app.alert("gone", on="worker_gone")
    async with app:
        store = app.store
        await store.extend(Heartbeat(worker="stays", received=0, lease=3600, queues=("default",)))
        await evaluate_alerts_for(app, clock, 15)
        await store.extend(Heartbeat(worker="leaves", received=0, lease=30, queues=("default",)))
        await rounds.record_worker_stop(store, "leaves")
        await evaluate_alerts_for(app, clock, 15)
        await evaluate_alerts_for(app, clock, 60)
        assert await app.alerts.states() == []


async def test_a_leader_looks_by_itself(clock: ManualClock, mailbox: Mailbox) -> None:
    """A running worker evaluates alerts periodically; this test does not call it."""
    app = an_app_that_alerts(clock)
    app.notifications.every, app.notifications.digest = 0.05, 0.0
    async with app:
        await _send(app, fails=True)
        worker = app.worker(lead_every=0.05)
        running = asyncio.create_task(worker.run())
        await wait_until(lambda: len(mailbox.messages) == 1)
        worker.stop()
        await running


async def test_a_store_over_its_size_raises_an_alert_q12(
    mailbox: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
    app.alert("large", on="store_size", above=1000)
    app.notifications.digest = 0.0
    async with app:
        assert (await rounds.evaluate_alerts(app.store, app.notifications)).made == 1
        await run_worker_until_idle(app)
    [message] = mailbox.messages
    assert message["subject"] == "[Tidemill] the store takes 0 MB"
    assert "Look: https://jobs.feeds.example/tidemill/alerts" in message.get_content()


def test_every_link_of_a_message_leads_to_a_page() -> None:
    from tidemill.web.asgi import page_routes

    known = [re.sub(r"{\w+}", "[^/]+", route.path) for route in page_routes() if route.method == "GET"]
    for on in AlertKind:
        alert = Alert(
            rule="r", on=on, subject="a/b", stage=AlertStage.RAISED, since=0.0, value=1.0, threshold=0.0
        )
        path = dashboard_path(alert).partition("?")[0]
        assert any(re.fullmatch(pattern, path) for pattern in known), path
