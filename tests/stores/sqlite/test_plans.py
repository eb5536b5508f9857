"""Every question a running system asks is answered from an index, whatever the backlog."""

import re

import apsw.ext
import pytest

from tests.stores.sqlite.conftest import group
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.stores.sqlite import SqliteStore, find
from tidemill.stores.sqlite.rows import FIELDS
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

VERBS = (
    *("transaction", "insert", "inbox", "claim", "settle", "extend", "reclaim", "prune", "admit", "reader"),
    *("pools", "accounts", "reservations", "lanes", "courses", "copying", "coordinator"),
)
BIG = ("jobs", "remembered", "lanes", "logs", "attempts", "accounts", "reservations", "courses", "stirs")
WHOLE_TABLE_ON_PURPOSE = {
    ("prune", "forget_workers"): "workers are few",
    ("prune", "forget_history"): "minutes are few",
    ("reclaim", "new_boot"): "once a boot",
    ("accounts", "all"): "once a boot",
    ("reader", "pooled_lanes"): "a person asks for all of them",
    ("reservations", "anything"): "stops at the first",
    ("settle", "standing"): "of reservations only the first is looked for",
}


def statements() -> list[tuple[str, str, str]]:
    return [(verb, name, sql) for verb in VERBS for name, sql in load(verb)]


@pytest.mark.parametrize(("verb", "name", "sql"), statements(), ids=lambda value: str(value)[:30])
async def test_no_statement_scans_a_table(store: SqliteStore, verb: str, name: str, sql: str) -> None:
    connection = store._writer._connection
    assert connection is not None
    details = _details(apsw.ext.query_info(connection, sql, explain_query_plan=True).query_plan)
    scans = [detail for detail in details if detail.split()[0] == "SCAN" and detail.split()[1] in BIG]
    if (verb, name) not in WHOLE_TABLE_ON_PURPOSE:
        # The running jobs are few, so an index of them may be read from end to end.
        assert not [scan for scan in scans if "jobs_running" not in scan], details


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("look", ("jobs_scheduled (queue=?)", "lanes_open (queue=? AND grp>?)", "lanes_shut (queue=?)")),
        ("open_groups", ("lanes_open (queue=? AND grp>?)", "PRIMARY KEY (queue=? AND grp=?)")),
        ("open_lanes", ("lanes_open (queue=? AND grp=? AND (priority,served,seq)>(?,?,?))",)),
        ("wake", ("lanes_shut (queue=? AND wake<?)",)),
        ("open_lanes_of", ("lanes_waits (waits=?)",)),
        ("open_lanes_of_pool", ("lanes_waits (waits>? AND waits<?)",)),
        ("lingers", ("lanes_waits (waits=? AND queue=?)",)),
        ("ripe_at", ("PRIMARY KEY (queue=? AND lane=?)",)),
        ("next_wait", ("lanes_shut (queue=?)", "lanes_open (queue=? AND grp=?)")),
    ],
)
async def test_p12_a_claim_finds_its_lanes_by_index(
    store: SqliteStore, name: str, ways: tuple[str, ...]
) -> None:
    """Nothing is sorted, and what is shut is not looked at."""
    connection = store._writer._connection
    assert connection is not None
    sql = {**dict(load("claim")), **dict(load("lanes"))}[name]
    details = _details(apsw.ext.query_info(connection, sql, explain_query_plan=True).query_plan)
    for way in ways:
        assert any(way in detail for detail in details), (way, details)
    assert not [detail for detail in details if "TEMP B-TREE" in detail], details


@pytest.mark.parametrize(
    ("verb", "name", "way"),
    [
        ("courses", "due", "courses_due (kind=? AND due<?)"),
        ("courses", "next_due", "courses_due (kind=? AND due>?)"),
        ("courses", "ends", "stirs_course (kind=? AND course=?)"),
        ("courses", "find", "courses_created (kind=? AND (created,id)<(?,?))"),
        ("courses", "find_name", "courses_name (kind=? AND name=? AND (created,id)<(?,?))"),
        ("courses", "find_state", "courses_state (kind=? AND state=? AND (created,id)<(?,?))"),
        ("prune", "outlived", "courses_until ((until,kind,id)>(?,?,?) AND until<?)"),
        ("prune", "ended_parts", "jobs_flow (<expr>=?)"),
        ("prune", "too_old", "jobs_ended (queue=? AND state=? AND <expr>=? AND finished>? AND finished<?)"),
    ],
)
async def test_f21_j83_courses_and_their_jobs_come_in_order_from_an_index(
    store: SqliteStore, verb: str, name: str, way: str
) -> None:
    """Jobs of flows that are kept do not stand in the way of whoever prunes a queue."""
    connection = store._writer._connection
    assert connection is not None
    sql = dict(load(verb))[name]
    details = _details(apsw.ext.query_info(connection, sql, explain_query_plan=True).query_plan)
    assert any(way in detail for detail in details), details
    assert not [detail for detail in details if "TEMP B-TREE" in detail], details


async def test_f10_however_often_a_flow_was_stirred_the_next_one_is_a_step_away(store: SqliteStore) -> None:
    connection = store._writer._connection
    assert connection is not None
    plan = apsw.ext.query_info(connection, load("courses").stirred, explain_query_plan=True).query_plan
    searches = [detail for detail in _details(plan) if "stirs" in detail]
    assert any("stirs_course (kind=? AND course>?)" in detail for detail in searches), searches
    assert all(detail.startswith("SEARCH") for detail in searches), searches


@pytest.mark.parametrize(
    ("wanted", "way"),
    [
        (Filter(queue="q", states=(State.FAILED,)), "jobs_ended (queue=? AND state=?"),
        (Filter(states=(State.RUNNING,)), "jobs_running"),
        (
            Filter(queue="q", states=(State.SCHEDULED,), since=5.0, time="due"),
            "jobs_scheduled (queue=? AND due>?)",
        ),
        (
            Filter(queue="q", since=5.0, time="finished"),
            "jobs_ended (queue=? AND state=? AND <expr>=? AND finished>?)",
        ),
        (Filter(ids=("a", "b"), queue="q", states=(State.READY,), text="x"), "jobs_id (id=?)"),
        (Filter(queue="rare"), "jobs_ready (queue=?)"),
        (Filter(flow="f", states=(State.FAILED,), queue="q"), "jobs_flow (<expr>=?)"),
    ],
)
async def test_r2_a_search_looks_only_where_the_jobs_are(
    store: SqliteStore, wanted: Filter, way: str
) -> None:
    await store.insert([group(*map(str, range(100))), group("a", queue="rare")])
    details = await store._reads.run(lambda transaction: _plan_of(transaction, wanted))
    scans = [detail for detail in details if detail.startswith("SCAN jobs") and "INDEX" not in detail]
    assert any(way in detail for detail in details), details
    assert not scans, details


async def test_r2_what_most_jobs_are_is_read_in_their_order(store: SqliteStore) -> None:
    """No sorting of a million places before the first page."""
    await store.insert([group(*map(str, range(100)))])
    wanted = Filter(queue="default", states=(State.READY,), text="x")
    details = await store._reads.run(lambda transaction: _plan_of(transaction, wanted))
    assert "SCAN jobs" in details
    assert not [detail for detail in details if "TEMP B-TREE" in detail], details


def _plan_of(transaction: Transaction, wanted: Filter) -> list[str]:
    source = find._source(transaction, wanted, None, bounded=True)
    assert source is not None
    statement = find._statement(source, wanted, None, None)
    plan = transaction.execute(
        f"EXPLAIN QUERY PLAN {statement}\n{find.SQL.newest_first}", find._values(wanted, None, None)
    )
    return [detail for *_, detail in plan]


def _details(plan: object) -> list[str]:
    """The lines of a query plan, which nests."""
    if plan is None:
        return []
    lines = [plan.detail]  # type: ignore[attr-defined]
    for part in plan.sub or ():  # type: ignore[attr-defined]
        lines += _details(part)
    return lines


@pytest.mark.parametrize("verb", [*VERBS, "find"])
def test_whole_jobs_are_read_in_the_order_of_their_fields(verb: str) -> None:
    """A row becomes a job by position: two names swapped would be silent."""
    for name, sql in load(verb):
        listed = re.search(r"SELECT (seq, id, queue, task, payload, state,.*?)\s+FROM jobs", sql, re.DOTALL)
        if listed is not None:
            assert tuple(re.split(r",\s*", listed.group(1))) == FIELDS, name
