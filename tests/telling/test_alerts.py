"""From what is wrong to the message: measured in a real store, said once by the fleet, with where to look."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.program import free_port
from tests.telling.mail import Mailbox, MailServer
from tests.telling.support import Receiver, an_app, pass_time, until, work
from tidemill import Filter, GiveUp, Limit, State, Tidemill
from tidemill.contract.store import Store
from tidemill.core.claims import Heartbeat
from tidemill.core.courses import Advance, Kind, Next
from tidemill.telemetry.events import ChoreBroke
from tidemill.telling.alerts import round as rounds
from tidemill.telling.alerts.book import BOOK_ID, RECORD_NAME, Alert, Stage
from tidemill.telling.alerts.channels import Email, Slack
from tidemill.telling.alerts.rule import On
from tidemill.telling.alerts.wording import page
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
    app = an_app(clock)

    @app.task(name="fetch", queue="feeds/eu")
    async def fetch(fails: bool) -> None:
        if fails:
            raise GiveUp("gone")

    return app


async def _send(app: Tidemill, *, fails: bool, count: int = 1, delay: float = 0.0) -> None:
    from tidemill.client.task import Task

    task: Task[[bool], None] = Task(app.client, app.tasks["fetch"])
    await app.enqueue_many([task.using(delay=delay).job(fails) for _ in range(count)])


async def _look(app: Tidemill, clock: ManualClock, seconds: float) -> None:
    """As the leader does, every 15 seconds."""
    while seconds > 0:
        clock.advance(15)
        seconds -= 15
        await rounds.run(app.store, app.telling)


async def test_an_e_mail_says_what_where_since_when_and_has_the_link_q12_e13_v7(
    clock: ManualClock, mailbox: Mailbox
) -> None:
    app = an_app_that_alerts(clock)
    async with app:
        await _send(app, fails=True, count=3)
        await work(app)
        await _look(app, clock, 60)
        [alert] = await app.alerts.states()
        assert (alert.rule, alert.subject, alert.value, alert.stage) == (
            "dead letters",
            "feeds/eu",
            3.0,
            "raised",
        )
        await work(app)
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
    app.telling.channels = {"slack": Slack(receiver.url)}
    receiver.stop()
    async with app:
        await _send(app, fails=True)
        await work(app)
        await _look(app, clock, 60)
        await pass_time(app, clock, 60)
        receiver.status, receiver.said = 200, b"ok"
        receiver.start()
        await pass_time(app, clock, 120)
    assert len(receiver.got) == 1


async def test_two_who_look_at_once_say_it_once(clock: ManualClock, mailbox: Mailbox) -> None:
    app = an_app_that_alerts(clock)
    app.telling.digest = 0.0
    async with app:
        await _send(app, fails=True)
        await work(app)
        store: Store = app.store
        first = await rounds.read(store)

        async def as_it_was(_: Store) -> object:
            return first

        with pytest.MonkeyPatch.context() as both:
            both.setattr(rounds, "read", as_it_was)
            made = [(await rounds.run(store, app.telling)).made for _ in range(2)]
        await work(app)
    assert made == [1, 0]
    assert len(mailbox.messages) == 1


async def test_what_is_long_late_or_failing_is_measured_q12(clock: ManualClock) -> None:
    app = an_app_that_alerts(clock)
    app.telling.channels = {"email": Email.at("smtp://mail.example", "a@b.example", ("c@d.example",))}
    app.alert("long", on="queue_length", above=4)
    app.alert("late", on="oldest_job", above=20, queue="feeds/eu")
    app.alert("failing", on="failure_ratio", above=0.4)
    app.alert("elsewhere", on="queue_length", above=0, queue="mail")
    async with app:
        await _send(app, fails=False, count=6)
        await work(app)
        await _send(app, fails=True, count=6)
        await work(app)
        await _send(app, fails=False, count=3)
        await _send(app, fails=False, count=2, delay=3600)
        await _look(app, clock, 45)
        found = {alert.rule: alert.value for alert in await app.alerts.states()}
    assert found == {"long": 5.0, "late": 45.0, "failing": 0.5}


async def test_a_pool_that_stays_closed_is_told_of_and_that_it_is_open_again(
    clock: ManualClock, mailbox: Mailbox
) -> None:
    app = an_app(clock)
    app.pool("gemini", Limit.requests(1, per="minute"))
    app.alert("closed", on="pool_closed", above=120)
    async with app:
        await work(app)
        await app.inspect.close_pool("gemini", by="ann")
        await _look(app, clock, 120)
        assert await app.alerts.states() == []
        await _look(app, clock, 60)
        await app.inspect.open_pool("gemini")
        await _look(app, clock, 60)
        await work(app)
    titles = sorted(str(message["subject"]) for message in mailbox.messages)
    assert titles == [
        "[Tidemill] pool gemini: closed for 0 s (over)",
        "[Tidemill] pool gemini: closed for 2 min",
    ]
    assert all("/pools/gemini" in message.get_content() for message in mailbox.messages)


async def test_a_worker_that_fell_silent_is_told_of_and_one_that_stopped_is_not(clock: ManualClock) -> None:
    app = an_app(clock)
    app.alert("gone", on="worker_gone")
    async with app:
        await app.store.extend(Heartbeat(worker="dies", received=0, lease=30, queues=("default",)))
        await work(app)  # a worker that comes, looks and goes
        await _look(app, clock, 45)
        await _look(app, clock, 15)
        found = [(alert.subject, alert.stage) for alert in await app.alerts.states()]
    assert found == [("dies", "raised")]


async def test_what_an_application_measures_itself_is_a_rule_like_any_other(
    clock: ManualClock, mailbox: Mailbox
) -> None:
    app = an_app(clock)
    unread = {"inbox": 3.0}

    async def measure() -> dict[str, float]:
        return unread

    app.alert("unread", on=measure, above=10)
    app.alert("plain", on=lambda: 5, above=10)
    app.telling.digest = 0.0
    async with app:
        await _look(app, clock, 15)
        unread["inbox"] = 12
        await _look(app, clock, 15)
        await work(app)
    assert [message["subject"] for message in mailbox.messages] == ["[Tidemill] unread inbox: 12"]


async def test_a_measure_that_raises_silences_no_other_rule(clock: ManualClock, mailbox: Mailbox) -> None:
    app = an_app_that_alerts(clock)
    app.alert("broken", on=lambda: 1 / 0, above=10)
    app.alert("failed", on="dead_letters")
    app.telling.digest = 0.0
    broken: list[ChoreBroke] = []
    app.on(ChoreBroke)(broken.append)
    async with app:
        app.telling.every = 0.02
        worker = app.worker(look_every=0.05)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(broken) == 1)
        await _send(app, fails=True)
        await until(lambda: len(mailbox.messages) == 1)
        worker.stop()
        await running
    assert [event.chore for event in broken] == ["alert broken"]  # once, however often it does


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_a_measure_that_is_no_number_spoils_no_book(clock: ManualClock, number: float) -> None:
    app = an_app_that_alerts(clock)
    app.alert("odd", on=lambda: {"a": number}, above=10)
    app.alert("failed", on="dead_letters")
    async with app:
        await _send(app, fails=True)
        await work(app)
        await _look(app, clock, 15)
        assert [alert.rule for alert in await app.alerts.states()] == ["failed"]


async def test_a_book_that_nobody_understands_is_begun_anew(clock: ManualClock) -> None:
    app = an_app_that_alerts(clock)
    app.alert("failed", on="dead_letters")
    async with app:
        strange = Next(name=RECORD_NAME, state="kept", record=b'{"alerts": 3}')
        await app.store.advance([Advance(kind=Kind.RECORD, id=BOOK_ID, expected=0, next=strange)])
        await _send(app, fails=True)
        await work(app)
        await _look(app, clock, 15)
        assert [alert.rule for alert in await app.alerts.states()] == ["failed"]


async def test_a_message_that_could_not_be_sent_is_no_alert_and_a_delivery_is(
    clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each would make another, for ever."""
    monkeypatch.setenv("TIDEMILL_ALERTS_SLACK_URL", f"{receiver.url}/slack")
    receiver.status = 500
    app = an_app_that_alerts(clock)
    app.alert("failed", on="dead_letters", queue="feeds/eu")
    app.alert("ours failed", on="dead_letters", queue="tidemill")
    app.telling.digest, app.telling.repeat = 0.0, 60.0
    async with app:
        await _send(app, fails=True)
        await work(app)
        await _look(app, clock, 15)
        await pass_time(app, clock, 7200, step=300)
        await _look(app, clock, 15)
        jobs = (await app.inspect.find(Filter(queue="tidemill"))).jobs
        assert {job.state for job in jobs} == {State.FAILED}
        assert [alert.rule for alert in await app.alerts.states()] == []
        receiver.status = 410
        app.webhook("gone", receiver.url, on=["job.failed"])
        await work(app)
        await _send(app, fails=True)
        await work(app)
        await _look(app, clock, 15)
        assert "ours failed" in [alert.rule for alert in await app.alerts.states()]


async def test_a_worker_that_leaves_before_anybody_saw_it_is_not_missed(clock: ManualClock) -> None:
    """It may be on the list that a leader has in hand."""
    app = an_app(clock)
    app.alert("gone", on="worker_gone")
    async with app:
        store = app.store
        await store.extend(Heartbeat(worker="stays", received=0, lease=3600, queues=("default",)))
        await _look(app, clock, 15)
        await store.extend(Heartbeat(worker="leaves", received=0, lease=30, queues=("default",)))
        await rounds.leave(store, "leaves")
        await _look(app, clock, 15)
        await _look(app, clock, 60)
        assert await app.alerts.states() == []


async def test_a_leader_looks_by_itself(clock: ManualClock, mailbox: Mailbox) -> None:
    """As a duty of a worker that runs: nothing here calls it."""
    app = an_app_that_alerts(clock)
    app.telling.every, app.telling.digest = 0.05, 0.0
    async with app:
        await _send(app, fails=True)
        worker = app.worker(look_every=0.05)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(mailbox.messages) == 1)
        worker.stop()
        await running


async def test_a_store_that_grows_too_large_is_told_of_q12(
    mailbox: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
    app.alert("large", on="store_size", above=1000)
    app.telling.digest = 0.0
    async with app:
        assert (await rounds.run(app.store, app.telling)).made == 1
        await work(app)
    [message] = mailbox.messages
    assert message["subject"] == "[Tidemill] the store takes 0 MB"
    assert "Look: https://jobs.feeds.example/tidemill/alerts" in message.get_content()


def test_every_link_of_a_message_leads_to_a_page() -> None:
    from tidemill.web.table import page_routes

    known = [re.sub(r"{\w+}", "[^/]+", route.path) for route in page_routes() if route.method == "GET"]
    for on in On:
        alert = Alert(rule="r", on=on, subject="a/b", stage=Stage.RAISED, since=0.0, value=1.0, threshold=0.0)
        path = page(alert).partition("?")[0]
        assert any(re.fullmatch(pattern, path) for pattern in known), path
