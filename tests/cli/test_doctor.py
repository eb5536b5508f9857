"""X7: the doctor says whether all is well, and if not, what to do."""

from __future__ import annotations

import asyncio
import importlib
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, claim, serve, settle
from tidemill import Tidemill
from tidemill.cli.doctor import check_store
from tidemill.cli.store_options import CommandTarget
from tidemill.clock import SystemClock
from tidemill.contract.store import Store, StoreFacts
from tidemill.core.claims import Heartbeat, HeldJob
from tidemill.core.jobs import Error
from tidemill.core.outcomes import Crash, FinalFailure, JobRelease, Success
from tidemill.core.queues import QueueChanges, Retention
from tidemill.metrics.dependencies import DependencyRecord, save_dependency

OOPS = Error("Oops", "it went wrong")


@pytest.fixture(autouse=True)
def store(cli: Cli) -> None:
    cli.make_store()


def run_doctor(cli: Cli, code: int) -> list[dict[str, Any]]:
    result = cli("doctor", "--app", "shop:app", "--json")
    assert result.code == code, result.out
    findings: list[dict[str, Any]] = result.json["findings"]
    assert code == any(finding["level"] == "bad" for finding in findings)
    return findings


def finding(cli: Cli, code: int, says: str) -> dict[str, Any]:
    """Returns the finding with this message. Every finding that is not ok has a remedy."""
    findings = run_doctor(cli, code)
    (found,) = (each for each in findings if says in each["message"])
    assert found["level"] == "ok" or found["remedy"]
    return found


def test_all_is_well(cli: Cli) -> None:
    cli.on_store(lambda store: serve(store, "mail"))
    result = cli("doctor", "--app", "shop:app")
    assert result.code == 0
    assert "ok   store: sqlite:///shop.db answers: SQLite 3." in result.out
    assert "ok   workers: 1 worker with 4 slots, 0 taken" in result.out
    assert "ok   queue mail: 0 pending, 0 running, 0 failed" in result.out
    assert "ok   leases: 0 running jobs, all in time" in result.out


def test_results_dropped_early_are_noted(cli: Cli) -> None:
    async def drop(store: Store) -> None:
        await store.override("mail", QueueChanges(keep_done=Retention(age=60.0, count=1)), by="ann")
        await settle(store, await claim(store, "mail", limit=3), Success())
        await store.prune()

    for _ in range(3):
        cli("enqueue", "send", "to=ann", "--app", "shop:app")
    cli.on_store(drop)
    found = finding(cli, 0, "dropped by count")
    assert found["message"] == (
        "2 ended jobs of the last 24 hours were dropped by count before their age was over; done jobs are "
        "kept for 60 seconds, at most 1"
    )
    assert "tidemill queues set mail keep_done=age=60,count=2" in found["remedy"]


def test_a_backlog_larger_than_the_retention_is_noted(cli: Cli) -> None:
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
    """X5: settings are read when the application is created."""
    monkeypatch.setenv("TIDEMILL_WORKER_LEASE", "45")
    monkeypatch.setenv("TIDEMILL_WORKER_LEESE", "45")
    result = cli("doctor", "--app", "shop:app")
    lines = [line.split() for line in result.out.splitlines()]
    assert ["url", "sqlite:///shop.db", "argument"] in lines
    assert ["worker.lease", "45.0", "environment", "TIDEMILL_WORKER_LEASE"] in lines
    assert ["queues.mail.weight", "3", "argument"] in lines
    assert "note settings: TIDEMILL_WORKER_LEESE is set and has no effect; did you mean" in result.out


@pytest.mark.parametrize("read", [True, False])
def test_the_settings_file_is_named(cli: Cli, tmp_path: Path, read: bool) -> None:
    file = tmp_path / "tidemill.toml"
    if read:
        file.write_text("[worker]\nlease = 45\n")
    says = f"{file} was read" if read else f"there is no settings file in {tmp_path}"
    assert f"ok   settings: {says}\n" in cli("doctor", "--app", "shop:app").out


def test_a_queue_that_only_the_settings_file_names_is_noted(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text(
        "[queues.mial]\nconcurrency = 1\n[queues.mail]\ncrash_limit = 5\n"
    )
    found = finding(cli, 0, "queues.mial is set, but no task is on this queue")
    assert (found["level"], found["remedy"]) == ("note", "did you mean queues.mail?")
    importlib.import_module("shop").send.using(queue="mial").enqueue_sync("a")
    cli.app().close_sync()
    assert not [each for each in run_doctor(cli, 1) if "queues.mial" in each["message"]]


def test_no_worker_is_a_note_until_there_is_work(cli: Cli) -> None:
    assert finding(cli, 0, "no worker is running")["level"] == "note"
    cli.send("a")
    findings = [each for each in run_doctor(cli, 1) if each["subject"] == "queue mail"]
    assert [(each["level"], each["remedy"]) for each in findings] == [
        ("bad", "start one: tidemill worker shop:app")
    ]
    assert findings[0]["message"] == "1 pending, 0 running, 0 failed; no worker is running"


def test_a_queue_without_a_worker_is_bad(cli: Cli) -> None:
    cli.send("a")
    cli.on_store(lambda store: serve(store, "feeds"))
    assert finding(cli, 1, "no worker serves it")["subject"] == "queue mail"


def test_a_paused_queue_with_work_is_noted(cli: Cli) -> None:
    cli.send("a")
    cli("queues", "pause", "mail", "--reason", "invoice", "--app", "shop:app")
    found = finding(cli, 0, "paused (invoice)")
    assert (found["level"], found["remedy"]) == (
        "note",
        "to go on: tidemill queues resume mail --app shop:app",
    )


def test_a_paused_queue_without_a_worker_is_only_noted(cli: Cli) -> None:
    cli.send("a")
    cli.on_store(lambda store: serve(store, "feeds"))
    cli("queues", "pause", "mail", "--reason", "invoice", "--app", "shop:app")
    assert finding(cli, 0, "paused (invoice)")["level"] == "note"


def test_an_override_is_noted(cli: Cli) -> None:
    cli.send("a")
    cli.on_store(lambda store: serve(store, "mail"))
    cli("queues", "set", "mail", "concurrency=1", "--reason", "flood", "--app", "shop:app")
    found = finding(cli, 0, "concurrency overridden by ")
    assert found["message"].endswith(": flood")
    assert "queues unset mail" in found["remedy"]


def test_expired_leases_are_bad(cli: Cli) -> None:
    job = cli.send("a")
    cli.on_store(lambda store: claim(store, "mail", lease=0.0))
    messages = " ".join(each["message"] for each in run_doctor(cli, 1))
    assert re.search(rf"1 running job is past the lease, up to \d\.\d s, such as {job}", messages)


class LateClock(SystemClock):
    """A wall clock that is two minutes late."""

    def wall(self) -> float:
        return super().wall() - 120


def enqueue_two_minutes_ago(delay: float) -> None:
    app = Tidemill("sqlite:///shop.db", clock=LateClock())

    @app.task(queue="mail", name="send")
    async def send() -> None: ...

    send.using(delay=delay).enqueue_sync()
    app.close_sync()


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize(("delay", "level"), [(1, "bad"), (100, "ok"), (600, "ok")])
def test_a_scheduled_job_is_overdue_after_a_minute(cli: Cli, delay: int, level: str, served: bool) -> None:
    """The jobs are due 119 seconds ago, 20 seconds ago, and in eight minutes."""
    enqueue_two_minutes_ago(delay)
    if served:
        cli.on_store(lambda store: serve(store, "mail"))
    findings = run_doctor(cli, int(level == "bad"))
    (queue,) = (each for each in findings if each["subject"] == "queue mail")
    assert queue["level"] == level
    if level == "bad":
        assert (
            "overdue by 1 min 59 s, and its workers have free slots" if served else "no worker is running"
        ) in queue["message"]


@pytest.mark.parametrize("delay", [0, 1])
def test_busy_workers_may_be_late(cli: Cli, delay: int) -> None:
    """A worker without a free slot neither starts nor promotes jobs; that is no fault."""
    enqueue_two_minutes_ago(delay)
    enqueue_two_minutes_ago(delay)

    async def work(store: Store) -> None:
        held = (await claim(store, "mail")).jobs[0]
        await store.extend(
            Heartbeat(
                worker="w",
                received=1,
                lease=60,
                held=(HeldJob(job=held.id, fence=held.fence, claim=held.claim),),
                queues=("mail",),
                concurrency=1,
            )
        )

    if delay:
        cli("queues", "set", "mail", "concurrency=1", "--app", "shop:app")
    cli.on_store(work)
    found = finding(cli, 0, "every slot is taken, none ended in the last ten minutes")
    assert found["level"] == "note"


def test_ready_jobs_that_no_worker_starts_are_bad(cli: Cli) -> None:
    enqueue_two_minutes_ago(0)
    cli.on_store(lambda store: serve(store, "mail"))
    assert "1 job could have started 2 min ago, and none did" in finding(cli, 1, "none did")["message"]


def test_a_long_backlog_is_noted_with_its_duration(cli: Cli) -> None:
    """One job ended in ten minutes, so ten jobs take a hundred minutes."""
    for n in range(11):
        cli.send(str(n))

    async def end_one(store: Store) -> None:
        await serve(store, "mail")
        await settle(store, await claim(store, "mail"), Success())

    cli.on_store(end_one)
    found = finding(cli, 0, "the backlog takes 1 h 40 min at 0.1 a minute")
    assert found["level"] == "note"


def test_dead_letters_are_noted(cli: Cli) -> None:
    cli.send("a")

    async def fail(store: Store) -> None:
        await settle(store, await claim(store, "mail"), FinalFailure(OOPS))

    cli.on_store(fail)
    found = finding(cli, 0, "1 job failed for good and is kept")
    assert "tidemill jobs retry --queue mail" in found["remedy"]


def test_jobs_that_may_have_run_twice_are_noted(cli: Cli) -> None:
    cli.send("a")

    async def lose(store: Store) -> None:
        await claim(store, "mail", lease=0.0)
        await store.reclaim()

    cli.on_store(lose)
    assert finding(cli, 1, "1 attempt of the last 24 hours had to be taken back")["level"] == "note"


def test_a_task_that_no_worker_knows_is_bad(cli: Cli) -> None:
    cli.send("does not know this task")  # the text is in a payload, which does not count

    async def hand_back(store: Store) -> None:
        await serve(store, "mail")
        await settle(store, await claim(store, "mail"), JobRelease(unknown=True))

    assert not any("workers do not know" in each["message"] for each in run_doctor(cli, 1))
    cli.on_store(hand_back)
    assert finding(cli, 1, "1 job of tasks that workers do not know: send")["subject"] == "tasks"


def arrive(task: str, ago: float) -> None:
    """Writes an arrival as another program with its database driver would."""
    with closing(sqlite3.connect("shop.db")) as database, database:
        database.execute(
            "INSERT INTO arrivals (id, task, payload, arrived) "
            "SELECT 'a' || count(*), ?, '{}', strftime('%s') - ? FROM arrivals",
            (task, ago),
        )


def test_j20_arrivals_that_no_worker_admitted_are_noted(cli: Cli) -> None:
    for task, ago in (("sned", 300), ("sned", 100), ("bonuce", 100), ("send", 0)):
        arrive(task, ago)
    found = finding(cli, 0, "4 requests from outside wait, the oldest for 5 min")
    assert (found["subject"], found["level"]) == ("arrivals", "note")
    assert "start one" in found["remedy"]
    cli.on_store(lambda store: serve(store, "mail"))
    found = finding(cli, 0, "3 requests from outside wait that no running worker has taken")
    assert found["message"].endswith(": bonuce, sned")
    assert "after 24 hours" in found["remedy"]


def test_j20_a_new_arrival_is_not_late(cli: Cli) -> None:
    arrive("send", 0)
    cli.on_store(lambda store: serve(store, "mail"))
    assert not any(each["subject"] == "arrivals" for each in run_doctor(cli, 0))


def test_a_new_poison_job_is_bad(cli: Cli) -> None:
    job = cli.send("poison")  # a payload with this text is not a poison job

    async def crash(store: Store) -> None:
        for number in range(1, 4):
            await settle(store, await claim(store, "mail", number=number), Crash(OOPS))

    assert not any(each["subject"] == "poison" for each in run_doctor(cli, 1))
    cli.on_store(crash)
    assert f"such as {job} (send)" in finding(cli, 1, "ended the process that ran it")["message"]


def test_a_service_that_is_away_is_bad(cli: Cli) -> None:
    async def report(store: Store) -> None:
        now = (await store.read_clock()).wall
        record = DependencyRecord(name="S3", problem="no route", since=now - 120, seen=now, retry_in=30)
        await save_dependency(store, record)

    cli.on_store(report)
    found = finding(cli, 1, "jobs have been waiting for it")
    assert found["subject"] == "dependency S3"
    assert "for 2 min" in found["message"]
    assert "no route" in found["message"]


class Yesterday(SystemClock):
    def wall(self) -> float:
        return super().wall() - 90_000


def test_an_old_poison_job_is_noted(cli: Cli) -> None:
    """The job is kept for a week, but only the first day is bad."""
    app = Tidemill("sqlite:///shop.db", clock=Yesterday())

    @app.task(queue="mail", name="send")
    async def send() -> None: ...

    async def crash() -> None:
        async with app:
            await send.enqueue()
            for number in range(1, 4):
                await settle(app.store, await claim(app.store, "mail", number=number), Crash(OOPS))

    asyncio.run(crash())
    assert finding(cli, 0, "ended the process that ran it")["level"] == "note"


def test_a_misconfigured_store_is_bad() -> None:
    facts = StoreFacts(
        kind="sqlite",
        engine="SQLite 3.40",
        location="jobs.db",
        bytes=200_000_000,
        free_bytes=150_000_000,
        warnings=("it is on a network file system",),
    )
    fine, warned, roomy = check_store("sqlite:///jobs.db", facts, CommandTarget())
    assert (fine.level, fine.message) == ("ok", "sqlite:///jobs.db answers: SQLite 3.40, 200 MB")
    assert (warned.level, warned.message) == ("bad", "it is on a network file system")
    assert (roomy.level, roomy.remedy) == ("note", "give them back when it is quiet: tidemill db compact")


def test_an_unreachable_store_is_one_bad_finding(cli: Cli) -> None:
    result = cli("doctor", "--url", "sqlite:///nowhere.db", "--json")
    (found,) = result.json["findings"]
    assert (result.code, found["level"], found["subject"]) == (1, "bad", "store")


def test_x6_a_health_check_covers_only_workers_of_this_host(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.on_store(lambda store: serve(store, "mail"))
    result = cli("doctor", "--here", "--app", "shop:app")
    assert result.code == 1, "the worker that lives is another host's"
    assert "restart it" in result.out
    monkeypatch.setattr("tidemill.cli.doctor.gethostname", lambda: "")  # the worker's id for this host
    result = cli("doctor", "--here", "--app", "shop:app")
    assert (result.code, result.out.count("\n")) == (0, 1)


def test_i30_a_suggested_command_shows_no_password() -> None:
    target = CommandTarget(url="redis://user:sk-secret@cache.internal:6379/0")
    assert target.command("queues") == "tidemill queues --url redis://cache.internal:6379/0"
    optioned = CommandTarget(url="redis://cache.internal/0?prefix=shop&password=sk-secret")
    assert optioned.command("queues") == "tidemill queues --url 'redis://cache.internal/0?***'"
    garbled = CommandTarget(url="redis://user:sk-sec@ret@cache.internal/0")
    assert garbled.command("queues") == "tidemill queues --url 'redis://***'"
    assert (
        CommandTarget(url="sqlite:///jobs.db").command("queues") == "tidemill queues --url sqlite:///jobs.db"
    )
