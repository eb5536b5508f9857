"""Retrying, cancelling, running, archiving, reprioritising and deleting jobs, by ids and by filter."""

from __future__ import annotations

import pytest

from tests.cli.support import Cli, claim, settle
from tidemill.contract.store import Store
from tidemill.core.jobs import Error
from tidemill.core.outcomes import FinalFailure

AT = ("--app", "shop:app")


@pytest.fixture(autouse=True)
def store(cli: Cli) -> None:
    cli.make_store()


def states(cli: Cli) -> dict[str, str]:
    return {job["id"]: job["state"] for job in cli("jobs", *AT, "--json").json["jobs"]}


def fail_all(cli: Cli) -> None:
    async def fail(store: Store) -> None:
        await settle(store, await claim(store, "mail", limit=100), FinalFailure(Error("Oops", "no")))

    cli.on_store(fail)


def test_jobs_are_changed_by_ids(cli: Cli) -> None:
    job = cli.send("a")
    assert cli("jobs", "cancel", job, "--reason", "typo", *AT).out == f"{job} cancelled\n"
    output = cli("jobs", *AT, "show", job).out
    assert "reason:           typo" in output
    result = cli("jobs", "cancel", job, *AT)
    assert (result.code, result.out) == (1, f"{job} already ended\n")
    assert result.err == "tidemill: nothing was changed\n"  # the reason is printed once
    assert cli("jobs", "retry", job, *AT, "--json").json["changed"] == [job]
    assert cli("jobs", "show", job, *AT, "--json").json["generation"] == 1


def test_a_missing_id_fails_and_the_others_are_changed(cli: Cli) -> None:
    job = cli.send("a")
    result = cli("jobs", "cancel", "nowhere-at-all", job, *AT)
    assert (result.code, result.out) == (1, f"{job} cancelled\n")
    assert result.err == "tidemill: there is no job 'nowhere-at-all': the id is wrong, or it was pruned\n"
    result = cli("jobs", "delete", "nowhere", "elsewhere", *AT, "--json")
    assert (result.code, result.json["missing"]) == (1, ["nowhere", "elsewhere"])


@pytest.mark.parametrize(
    ("verb", "delay", "after"),
    [
        (("cancel",), (), "cancelled"),
        (("archive", "--reason", "later"), (), "failed"),
        (("run",), ("--delay", "1h"), "ready"),
        (("reprioritise", "2"), (), "ready"),
    ],
    ids=str,
)
def test_every_change(cli: Cli, verb: tuple[str, ...], delay: tuple[str, ...], after: str) -> None:
    job = cli("enqueue", "send", "to=a", *delay, *AT).out.strip()
    assert cli("jobs", *verb, "--task", "send", "--yes", *AT).code == 0
    assert states(cli) == {job: after}
    if verb[0] == "reprioritise":
        assert cli("jobs", "show", job, *AT, "--json").json["priority"] == 2


def test_a_filter_is_counted_and_confirmed(cli: Cli) -> None:
    jobs = [cli.send(f"{n}@example.org") for n in range(3)]
    result = cli("jobs", "delete", "--queue", "mail", *AT)
    assert (result.code, result.out) == (2, "")
    assert "3 jobs match, and there is no terminal to ask on: add --yes to delete them" in result.err
    assert set(states(cli)) == set(jobs)
    assert cli("jobs", "delete", "--text", "0@", "--yes", *AT).out == "1 job deleted\n"
    assert cli("jobs", "delete", "--queue", "mail", "--yes", *AT, "--json").json["changed"] == jobs[1:]
    assert states(cli) == {}


def test_one_job_is_worded_in_the_singular(cli: Cli) -> None:
    cli.send("a")
    result = cli("jobs", "cancel", "--queue", "mail", *AT)
    assert "1 job matches" in result.err
    assert "to cancel it without" in result.err


def test_a_filter_without_matches_is_a_failure(cli: Cli) -> None:
    cli.send("a")
    result = cli("jobs", "retry", "--queue", "mail", "--yes", *AT)
    assert (result.code, result.out) == (1, "")
    assert "no job matches the filter in a state it applies to (failed)" in result.err
    result = cli("jobs", "cancel", "--text", "nobody", "--yes", *AT, "--json")
    assert (result.code, result.json["changed"]) == (1, [])


def test_a_retry_by_filter_selects_failed_jobs(cli: Cli) -> None:
    """An imprecise filter must not repeat jobs that are done; --state done does."""
    failed = [cli.send("a"), cli.send("b")]
    fail_all(cli)
    cancelled = cli.send("c")
    cli("jobs", "cancel", cancelled, *AT)
    assert cli("jobs", "retry", "--queue", "mail", "--yes", *AT).out == "2 jobs retried\n"
    assert states(cli) == dict.fromkeys(failed, "ready") | {cancelled: "cancelled"}
    assert cli("jobs", "retry", "--queue", "mail", "--state", "cancelled", "--yes", *AT).code == 0
    assert states(cli)[cancelled] == "ready"


def test_a_running_job_is_not_deleted(cli: Cli) -> None:
    job = cli.send("a")
    cli.on_store(lambda store: claim(store, "mail"))
    result = cli("jobs", "delete", job, *AT)
    assert (result.code, result.out) == (1, f"{job} running: cancel it first\n")
    assert states(cli) == {job: "running"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("retry",), "say which jobs: their ids, or a filter"),
        (("delete", "--time", "due", "--yes"), "say which jobs: their ids, or a filter"),
        (("retry", "x", "--queue", "mail"), "by their ids or by a filter, not by both"),
        (("retry", "--field", "host"), "'host' is not PATH=VALUE"),
        (("retry", "--field", "a..b=1"), "'a..b=1' is not PATH=VALUE"),
        (("retry", "--text", ""), "must not be empty"),
        (("reprioritise", "soon", "x"), "must be a whole number from -32768 to 32767, is 'soon'"),
        (("reprioritise", "40000", "x"), "must be a whole number from -32768 to 32767, is '40000'"),
        (("cancel", "--state", "lost", "--yes"), "'lost' is not one of"),
        (("run", "--since", "soon"), "'soon' is neither a duration nor a time"),
    ],
    ids=str,
)
def test_wrong_usage_changes_nothing(cli: Cli, arguments: tuple[str, ...], says: str) -> None:
    job = cli.send("a")
    result = cli("jobs", *arguments, *AT)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert says in result.err
    assert states(cli) == {job: "ready"}
