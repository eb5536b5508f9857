"""X7: whether all is well, and if not, what to do."""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, claim, serve, settle
from tidemill import Tidemill
from tidemill.cli.doctor.store import about_store
from tidemill.cli.target import Target
from tidemill.clock import SystemClock
from tidemill.contract.store import Store
from tidemill.contract.upkeep import StoreFacts
from tidemill.core.claims import Heartbeat, Held
from tidemill.core.job import Error
from tidemill.core.outcomes import Crashed, Done, Fail, Release
from tidemill.core.queues import QueueChanges, Retention

OOPS = Error("Oops", "it went wrong")


@pytest.fixture(autouse=True)
def store(cli: Cli) -> None:
    cli.make_store()


def examined(cli: Cli, code: int) -> list[dict[str, Any]]:
    ran = cli("doctor", "--app", "shop:app", "--json")
    assert ran.code == code, ran.out
    findings: list[dict[str, Any]] = ran.json["findings"]
    assert code == any(finding["level"] == "bad" for finding in findings)
    return findings


def finding(cli: Cli, code: int, says: str) -> dict[str, Any]:
    """The one that says it; whatever is not well comes with what to do."""
    findings = examined(cli, code)
    (found,) = (each for each in findings if says in each["says"])
    assert found["level"] == "ok" or found["remedy"]
    return found


def test_all_is_well(cli: Cli) -> None:
    cli.on_store(lambda store: serve(store, "mail"))
    ran = cli("doctor", "--app", "shop:app")
    assert ran.code == 0
    assert "ok   store: sqlite:///shop.db answers: SQLite 3." in ran.out
    assert "ok   workers: 1 worker with 4 slots, 0 taken" in ran.out
    assert "ok   queue mail: 0 pending, 0 running, 0 failed" in ran.out
    assert "ok   leases: 0 running jobs, all in time" in ran.out


def test_results_that_were_dropped_early(cli: Cli) -> None:
    async def drop(store: Store) -> None:
        await store.override("mail", QueueChanges(keep_done=Retention(age=60.0, count=1)), by="ann")
        await settle(store, await claim(store, "mail", limit=3), Done())
        await store.prune()

    for _ in range(3):
        cli("enqueue", "send", "to=ann", "--app", "shop:app")
    cli.on_store(drop)
    found = finding(cli, 0, "dropped by count")
    assert found["says"] == (
        "2 ended jobs of the last 24 hours were dropped by count before their age was over; done jobs are "
        "kept for 60 seconds, at most 1"
    )
    assert "tidemill queues set mail keep_done=age=60,count=2" in found["remedy"]


def test_a_backlog_that_is_larger_than_what_is_kept(cli: Cli) -> None:
    async def keep_one(store: Store) -> None:
        await serve(store, "mail")
        await store.override("mail", QueueChanges(keep_done=Retention(count=1)), by="ann")

    for _ in range(2):
        cli("enqueue", "send", "to=ann", "--app", "shop:app")
    cli.on_store(keep_one)
    found = finding(cli, 0, "more than the queue keeps")
    assert found["level"] == "note"
    assert "keep_done=count=4" in found["remedy"]


def test_settings_are_shown_with_their_origins(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """X5: read when the application is made."""
    monkeypatch.setenv("TIDEMILL_WORKER_LEASE", "45")
    monkeypatch.setenv("TIDEMILL_WORKER_LEESE", "45")
    ran = cli("doctor", "--app", "shop:app")
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["url", "sqlite:///shop.db", "argument"] in lines
    assert ["worker.lease", "45.0", "environment", "TIDEMILL_WORKER_LEASE"] in lines
    assert ["queues.mail.weight", "3", "argument"] in lines
    assert "note settings: TIDEMILL_WORKER_LEESE is set and nobody reads it; did you mean" in ran.out


@pytest.mark.parametrize("read", [True, False])
def test_the_settings_file_that_was_read_is_named(cli: Cli, tmp_path: Path, read: bool) -> None:
    file = tmp_path / "tidemill.toml"
    if read:
        file.write_text("[worker]\nlease = 45\n")
    says = f"{file} was read" if read else f"there is no settings file in {tmp_path}"
    assert f"ok   settings: {says}\n" in cli("doctor", "--app", "shop:app").out


def test_a_queue_that_only_the_file_knows_is_noted(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text(
        "[queues.mial]\nconcurrency = 1\n[queues.mail]\ncrash_limit = 5\n"
    )
    found = finding(cli, 0, "queues.mial is set, but no task is on this queue")
    assert (found["level"], found["remedy"]) == ("note", "did you mean queues.mail?")
    importlib.import_module("shop").send.using(queue="mial").enqueue_sync("a")
    cli.app().close_sync()
    assert not [each for each in examined(cli, 1) if "queues.mial" in each["says"]]


def test_no_worker_is_a_note_until_there_is_work(cli: Cli) -> None:
    assert finding(cli, 0, "no worker is running")["level"] == "note"
    cli.send("a")
    findings = [each for each in examined(cli, 1) if each["about"] == "queue mail"]
    assert [(each["level"], each["remedy"]) for each in findings] == [
        ("bad", "start one: tidemill worker shop:app")
    ]
    assert findings[0]["says"] == "1 pending, 0 running, 0 failed; no worker is running"


def test_a_queue_nobody_serves(cli: Cli) -> None:
    cli.send("a")
    cli.on_store(lambda store: serve(store, "feeds"))
    assert finding(cli, 1, "no worker serves it")["about"] == "queue mail"


def test_a_paused_queue_with_work_is_noted(cli: Cli) -> None:
    cli.send("a")
    cli("queues", "pause", "mail", "--reason", "invoice", "--app", "shop:app")
    found = finding(cli, 0, "paused (invoice)")
    assert (found["level"], found["remedy"]) == (
        "note",
        "to go on: tidemill queues resume mail --app shop:app",
    )


def test_a_queue_that_waits_on_purpose_is_noted_though_nobody_serves_it(cli: Cli) -> None:
    cli.send("a")
    cli.on_store(lambda store: serve(store, "feeds"))
    cli("queues", "pause", "mail", "--reason", "invoice", "--app", "shop:app")
    assert finding(cli, 0, "paused (invoice)")["level"] == "note"


def test_an_override_is_noted(cli: Cli) -> None:
    cli.send("a")
    cli.on_store(lambda store: serve(store, "mail"))
    cli("queues", "set", "mail", "concurrency=1", "--reason", "flood", "--app", "shop:app")
    found = finding(cli, 0, "concurrency overridden by ")
    assert found["says"].endswith(": flood")
    assert "queues unset mail" in found["remedy"]


def test_expired_leases(cli: Cli) -> None:
    job = cli.send("a")
    cli.on_store(lambda store: claim(store, "mail", lease=0.0))
    assert f"1 running job is past the lease, up to 0.0 s, such as {job}" in " ".join(
        each["says"].replace("0.1 s", "0.0 s") for each in examined(cli, 1)
    )


class Behind(SystemClock):
    """The wall clock of two minutes ago."""

    def wall(self) -> float:
        return super().wall() - 120


def enqueue_two_minutes_ago(delay: float) -> None:
    app = Tidemill("sqlite:///shop.db", clock=Behind())

    @app.task(queue="mail", name="send")
    async def send() -> None: ...

    send.using(delay=delay).enqueue_sync()
    app.close_sync()


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize(("delay", "level"), [(1, "bad"), (100, "ok"), (600, "ok")])
def test_a_scheduled_job_is_overdue_after_a_minute(cli: Cli, delay: int, level: str, served: bool) -> None:
    """Due 119 seconds ago, 20 seconds ago, and in eight minutes."""
    enqueue_two_minutes_ago(delay)
    if served:
        cli.on_store(lambda store: serve(store, "mail"))
    findings = examined(cli, int(level == "bad"))
    (queue,) = (each for each in findings if each["about"] == "queue mail")
    assert queue["level"] == level
    if level == "bad":
        assert (
            "overdue by 1 min 59 s, and its workers have free slots" if served else "no worker is running"
        ) in queue["says"]


@pytest.mark.parametrize("delay", [0, 1])
def test_busy_workers_may_be_late(cli: Cli, delay: int) -> None:
    """A worker whose hands are full starts and promotes nothing: that is no fault of it."""
    enqueue_two_minutes_ago(delay)
    enqueue_two_minutes_ago(delay)

    async def work(store: Store) -> None:
        held = (await claim(store, "mail")).jobs[0]
        await store.extend(
            Heartbeat(
                worker="w",
                received=1,
                lease=60,
                held=(Held(job=held.id, fence=held.fence, claim=held.claim),),
                queues=("mail",),
                concurrency=1,
            )
        )

    if delay:
        cli("queues", "set", "mail", "concurrency=1", "--app", "shop:app")
    cli.on_store(work)
    found = finding(cli, 0, "every slot is taken, none ended in the last ten minutes")
    assert found["level"] == "note"


def test_ready_jobs_that_nobody_starts(cli: Cli) -> None:
    enqueue_two_minutes_ago(0)
    cli.on_store(lambda store: serve(store, "mail"))
    assert "1 job could have started 2 min ago, and none did" in finding(cli, 1, "none did")["says"]


def test_a_backlog_is_told_with_the_time_it_takes(cli: Cli) -> None:
    """One job in ten minutes: ten of them take a hundred minutes."""
    for n in range(11):
        cli.send(str(n))

    async def end_one(store: Store) -> None:
        await serve(store, "mail")
        await settle(store, await claim(store, "mail"), Done())

    cli.on_store(end_one)
    found = finding(cli, 0, "the backlog takes 1 h 40 min at 0.1 a minute")
    assert found["level"] == "note"


def test_dead_letters_are_noted(cli: Cli) -> None:
    cli.send("a")

    async def fail(store: Store) -> None:
        await settle(store, await claim(store, "mail"), Fail(OOPS))

    cli.on_store(fail)
    found = finding(cli, 0, "1 job failed for good and is kept")
    assert "tidemill jobs retry --queue mail" in found["remedy"]


def test_jobs_that_may_have_run_twice(cli: Cli) -> None:
    cli.send("a")

    async def lose(store: Store) -> None:
        await claim(store, "mail", lease=0.0)
        await store.reclaim()

    cli.on_store(lose)
    assert finding(cli, 1, "1 attempt of the last 24 hours had to be taken back")["level"] == "note"


def test_a_task_that_no_worker_knows(cli: Cli) -> None:
    cli.send("does not know this task")  # said in a payload, which is not the same

    async def hand_back(store: Store) -> None:
        await serve(store, "mail")
        await settle(store, await claim(store, "mail"), Release(unknown=True))

    assert not any("workers do not know" in each["says"] for each in examined(cli, 1))
    cli.on_store(hand_back)
    assert finding(cli, 1, "1 job of tasks that workers do not know: send")["about"] == "tasks"


def arrive(task: str, ago: float) -> None:
    """As any program with a driver of its own does."""
    with closing(sqlite3.connect("shop.db")) as database, database:
        database.execute(
            "INSERT INTO arrivals (id, task, payload, arrived) "
            "SELECT 'a' || count(*), ?, '{}', strftime('%s') - ? FROM arrivals",
            (task, ago),
        )


def test_j20_requests_that_no_worker_took_are_noted(cli: Cli) -> None:
    for task, ago in (("sned", 300), ("sned", 100), ("bonuce", 100), ("send", 0)):
        arrive(task, ago)
    found = finding(cli, 0, "4 requests from outside wait, the oldest for 5 min")
    assert (found["about"], found["level"]) == ("arrivals", "note")
    assert "start one" in found["remedy"]
    cli.on_store(lambda store: serve(store, "mail"))
    found = finding(cli, 0, "3 requests from outside wait that no running worker has taken")
    assert found["says"].endswith(": bonuce, sned")
    assert "after 24 hours" in found["remedy"]


def test_j20_a_request_that_came_just_now_is_not_late(cli: Cli) -> None:
    arrive("send", 0)
    cli.on_store(lambda store: serve(store, "mail"))
    assert not any(each["about"] == "arrivals" for each in examined(cli, 0))


def test_poison(cli: Cli) -> None:
    job = cli.send("poison")  # a payload that says so is none

    async def crash(store: Store) -> None:
        for number in range(1, 4):
            await settle(store, await claim(store, "mail", number=number), Crashed(OOPS))

    assert not any(each["about"] == "poison" for each in examined(cli, 1))
    cli.on_store(crash)
    assert f"such as {job} (send)" in finding(cli, 1, "ended the process that ran it")["says"]


class Yesterday(SystemClock):
    def wall(self) -> float:
        return super().wall() - 90_000


def test_poison_of_yesterday_is_noted(cli: Cli) -> None:
    """It is kept for a week; nobody is called for it all that time."""
    app = Tidemill("sqlite:///shop.db", clock=Yesterday())

    @app.task(queue="mail", name="send")
    async def send() -> None: ...

    async def crash() -> None:
        async with app:
            await send.enqueue()
            for number in range(1, 4):
                await settle(app.store, await claim(app.store, "mail", number=number), Crashed(OOPS))

    asyncio.run(crash())
    assert finding(cli, 0, "ended the process that ran it")["level"] == "note"


def test_a_store_that_is_badly_set_up() -> None:
    facts = StoreFacts(
        kind="sqlite",
        engine="SQLite 3.40",
        location="jobs.db",
        bytes=200_000_000,
        free_bytes=150_000_000,
        warnings=("it is on a network file system",),
    )
    fine, warned, roomy = about_store("sqlite:///jobs.db", facts, Target())
    assert (fine.level, fine.says) == ("ok", "sqlite:///jobs.db answers: SQLite 3.40, 200 MB")
    assert (warned.level, warned.says) == ("bad", "it is on a network file system")
    assert (roomy.level, roomy.remedy) == ("note", "give them back when it is quiet: tidemill db compact")


def test_an_unreachable_store_is_one_bad_finding(cli: Cli) -> None:
    ran = cli("doctor", "--url", "sqlite:///nowhere.db", "--json")
    (found,) = ran.json["findings"]
    assert (ran.code, found["level"], found["about"]) == (1, "bad", "store")


def test_x6_a_health_check_asks_for_a_worker_of_this_host_only(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.on_store(lambda store: serve(store, "mail"))
    ran = cli("doctor", "--here", "--app", "shop:app")
    assert ran.code == 1, "the worker that lives is another host's"
    assert "restart it" in ran.out
    monkeypatch.setattr(
        "tidemill.cli.doctor.command.gethostname", lambda: ""
    )  # as that worker says of itself
    ran = cli("doctor", "--here", "--app", "shop:app")
    assert (ran.code, ran.out.count("\n")) == (0, 1)


def test_i30_a_command_to_type_next_shows_no_password() -> None:
    target = Target(url="redis://user:sk-secret@cache.internal:6379/0")
    assert target.command("queues") == "tidemill queues --url redis://cache.internal:6379/0"
    optioned = Target(url="redis://cache.internal/0?prefix=shop&password=sk-secret")
    assert optioned.command("queues") == "tidemill queues --url 'redis://cache.internal/0?***'"
    garbled = Target(url="redis://user:sk-sec@ret@cache.internal/0")
    assert garbled.command("queues") == "tidemill queues --url 'redis://***'"
    assert Target(url="sqlite:///jobs.db").command("queues") == "tidemill queues --url sqlite:///jobs.db"
