"""Showing, pausing, running, setting and removing schedules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Cli
from tidemill.contract.store import Store
from tidemill.core.documents import Advance, DocumentKind, DocumentUpdate

DECLARED = """
from tidemill import Tidemill

app = Tidemill("sqlite:///shop.db")

@app.task(queue="mail", name="send")
async def send(to: str) -> str:
    return f"sent to {to}"

app.schedule("nightly", send.job("all@example.org"), cron="0 3 * * *", tz="Asia/Shanghai")
"""
APP = ("--app", "nights:app")


@pytest.fixture(autouse=True)
def declared(cli: Cli, tmp_path: Path) -> None:
    """A worker has started once and stored the declared schedules."""
    (tmp_path / "nights.py").write_text(DECLARED)
    assert cli("worker", "--until-idle", "nights:app").code == 0


def test_schedules_are_shown(cli: Cli) -> None:
    (nightly,) = cli("schedules", *APP, "--json").json["schedules"]
    assert (nightly["name"], nightly["state"], nightly["origin"]) == ("nightly", "active", "declared")
    assert nightly["arguments"] == {"to": "all@example.org"}
    assert nightly["settings"]["cron"] == "0 3 * * *"
    assert nightly["settings"]["catch_up"] == "once"
    header, line = cli("schedules", "--url", "sqlite:///shop.db").out.splitlines()
    assert header.split() == ["schedule", "task", "ticks", "next", "last", "origin", "state"]
    assert "0 3 * * * Asia/Shanghai" in line
    assert cli("schedules", *APP, "--state", "paused", "--json").json["schedules"] == []
    assert len(cli("schedules", *APP, "--origin", "declared", "--json").json["schedules"]) == 1


def test_an_empty_list_prints_a_note(cli: Cli) -> None:
    result = cli("schedules", *APP, "--state", "paused")
    assert (result.code, result.out, result.err) == (0, "", "tidemill: no schedule matches\n")
    cli("schedules", "remove", "nightly", *APP)
    assert "a worker stores the declared ones when it starts" in cli("schedules", *APP).err
    assert "a worker writes those" in cli("schedules", "run", "nightly", *APP).err
    result = cli("schedules", "--state", "paused", "info", "nightly", *APP)
    assert (result.code, "give its name, and no filter" in result.err) == (2, True)


def test_an_invalid_cursor_is_refused(cli: Cli) -> None:
    result = cli("schedules", *APP, "--cursor", "x")
    assert (result.code, result.err) == (2, "tidemill: cursor: must be one that a page ended with, is 'x'\n")


def test_a_schedule_is_shown_with_its_ticks(cli: Cli) -> None:
    out = cli("schedules", "info", "nightly", *APP).out
    assert "19:00:00 UTC" in out or "03:00:00" in out
    assert '{"to":"all@example.org"}' in out
    assert len(cli("schedules", "info", "nightly", *APP, "--json").json["next"]) == 5
    result = cli("schedules", "info", "nigthly", *APP)
    assert (result.code, result.err[:46]) == (1, "tidemill: there is no schedule 'nigthly'; `tid")


def test_a_schedule_is_paused_and_resumed(cli: Cli) -> None:
    result = cli("schedules", "pause", "nightly", "--for", "1h30m", "--reason", "moving", *APP)
    assert result.out.startswith("nightly is paused until ")
    assert "(moving)" in cli("schedules", *APP).out
    assert cli("schedules", "resume", "nightly", *APP).out.startswith("nightly is active, next at ")
    result = cli("schedules", "pause", "nightly", "--until", "2001-01-01", *APP)
    assert result.code == 2
    assert "until: must be in the future" in result.err


def test_a_schedule_is_run_now(cli: Cli) -> None:
    result = cli("schedules", "run", "nightly", "--url", "sqlite:///shop.db")
    assert (result.code, "task: 'send' is not known here" in result.err) == (2, True)
    job = cli("schedules", "run", "nightly", *APP).out.strip()
    assert job.startswith("nightly@")
    result = cli("schedules", "run", "nightly", *APP, "--json")
    assert result.json == {"schedule": "nightly", "job": job, "existing": True}
    assert cli("jobs", "show", job, *APP, "--json").json["task"] == "send"
    assert cli("schedules", "info", "nightly", *APP, "--json").json["history"][0]["job"] == job


def test_settings_are_overridden(cli: Cli) -> None:
    result = cli("schedules", "set", "nightly", "cron=0 4 * * *", "jitter=5m", "--reason", "quiet", *APP)
    assert result.out.startswith("nightly: cron=0 4 * * * jitter=300 by ")
    view = cli("schedules", "info", "nightly", *APP, "--json").json
    assert (view["settings"]["cron"], view["declared"]["cron"]) == ("0 4 * * *", "0 3 * * *")
    assert cli("worker", "--until-idle", "nights:app").code == 0
    assert cli("schedules", "info", "nightly", *APP, "--json").json["settings"]["jitter"] == 300
    assert "jitter=300" in cli("schedules", "unset", "nightly", "cron", *APP).out
    assert "follows the code again" in cli("schedules", "unset", "nightly", *APP).out
    result = cli("schedules", "unset", "nightly", *APP)
    assert (result.code, "nothing is overridden" in result.err) == (1, True)


def test_the_next_tick_of_an_interval_is_moved(cli: Cli, tmp_path: Path) -> None:
    hourly = DECLARED.replace('cron="0 3 * * *", tz="Asia/Shanghai"', "every=3600")
    (tmp_path / "hours.py").write_text(hourly)
    app = ("--app", "hours:app")
    assert cli("worker", "--until-idle", "hours:app").code == 0
    result = cli("schedules", "set", "nightly", "--next-at", "2999-05-01T08:00Z", *app)
    assert result.out.startswith("nightly: next at 2999-05-01")
    view = cli("schedules", "set", "nightly", "--next-at", "2999-05-02T08:00Z", *app, "--json").json
    assert view["next"][1] == view["next"][0] + 3600
    assert view["override"] is None


def test_next_at_is_refused_with_a_cron_expression_and_beside_an_override(cli: Cli) -> None:
    result = cli("schedules", "set", "nightly", "--next-at", "2999-05-01T08:00Z", *APP)
    assert (result.code, "next_at: must come with every" in result.err) == (2, True)
    for words in (["every=60"], ["--reason", "quiet"], ["--for", "1h"]):
        result = cli("schedules", "set", "nightly", "--next-at", "2999-05-01T08:00Z", *words, *APP)
        assert (result.code, "give it alone" in result.err) == (2, True)
    result = cli("schedules", "set", "nightly", *APP)
    assert (result.code, "name at least one setting" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["cron=0 25 * * *"], "cron: '0 25 * * *' is not a cron expression (bad hour)"),
        (["tz=Mars/Base"], "tz: 'Mars/Base' is not in the time zone database"),
        (["every=0"], "every: must be 1 second or more"),
        (["every=soon"], "every: 'soon' is not a duration"),
        (["catch_up=never"], "catch_up: must be one of skip, once, all, is 'never'"),
        (["corn=x"], "schedules have no setting 'corn'"),
        (["cron"], "'cron' is not SETTING=VALUE"),
        (["every=60", "cron=0 4 * * *"], "give either cron or every"),
    ],
)
def test_an_invalid_setting_is_named(cli: Cli, words: list[str], says: str) -> None:
    result = cli("schedules", "set", "nightly", *words, *APP)
    assert result.code == 2
    assert says in result.err
    assert cli("schedules", "info", "nightly", *APP, "--json").json["override"] is None


def test_a_schedule_is_removed(cli: Cli) -> None:
    assert cli("schedules", "remove", "nightly", *APP).out == "nightly is removed\n"
    assert cli("schedules", *APP, "--json").json["schedules"] == []
    assert cli("schedules", "remove", "nightly", *APP).code == 1


def test_the_doctor_reports_schedules_that_code_no_longer_declares(cli: Cli, tmp_path: Path) -> None:
    before, _, _ = DECLARED.partition("app.schedule(")
    (tmp_path / "later.py").write_text(before)
    assert cli("worker", "--until-idle", "later:app").code == 0
    assert "1 schedule is disabled" in cli("doctor", "--app", "later:app").out
    assert cli("schedules", "--app", "later:app", "--json").json["schedules"][0]["state"] == "disabled"


def test_the_doctor_reports_schedules_that_no_worker_fires(cli: Cli, tmp_path: Path) -> None:
    late = DECLARED.replace('cron="0 3 * * *", tz="Asia/Shanghai"', 'every=1, catch_up="all"')
    (tmp_path / "late.py").write_text(late)
    assert cli("worker", "--until-idle", "late:app").code == 0

    async def long_ago(store: Store) -> None:
        [document] = await store.documents(DocumentKind.SCHEDULE, ["nightly"])
        assert document is not None
        then = (await store.read_clock()).wall - 3600
        put = DocumentUpdate(name=document.name, state=document.state, record=document.record, due=then)
        await store.advance(
            [Advance(kind=DocumentKind.SCHEDULE, id="nightly", expected=document.revision, next=put)]
        )

    cli.on_store(long_ago)
    result = cli("doctor", "--app", "late:app")
    assert result.code == 1
    assert "1 schedule is due and not fired, for up to 1 h" in result.out
