"""Every query of a running system uses an index."""

import re

import apsw.ext
import pytest

from tests.stores.sqlite.conftest import group
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.stores.sqlite import SqliteStore, find
from tidemill.stores.sqlite.rows import FIELDS
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction

VERBS = (
    *("transaction", "insert", "inbox", "claim", "settle", "extend", "reclaim", "prune", "admit", "reader"),
    *("pools", "accounts", "reservations", "lanes", "documents", "copy", "leadership"),
)
BIG = ("jobs", "known_ids", "lanes", "logs", "attempts", "accounts", "reservations", "documents", "worklist")
WHOLE_TABLE_ON_PURPOSE = {
    ("prune", "delete_workers"): "workers are few",
    ("prune", "delete_minutes"): "minutes are few",
    ("reclaim", "end_leases"): "once a boot",
    ("accounts", "all"): "once a boot",
    ("reader", "pooled_lanes"): "an operator asks for all of them",
    ("reservations", "has_rows"): "stops at the first",
    ("settle", "current_claims"): "of reservations only the first is read",
}


def statements() -> list[tuple[str, str, str]]:
    return [(verb, name, sql) for verb in VERBS for name, sql in load_statements(verb)]


@pytest.mark.parametrize(("verb", "name", "sql"), statements(), ids=lambda value: str(value)[:30])
async def test_no_statement_scans_a_table(store: SqliteStore, verb: str, name: str, sql: str) -> None:
    connection = store._writer._connection
    assert connection is not None
    details = _details(apsw.ext.query_info(connection, sql, explain_query_plan=True).query_plan)
    scans = [detail for detail in details if detail.split()[0] == "SCAN" and detail.split()[1] in BIG]
    if (verb, name) not in WHOLE_TABLE_ON_PURPOSE:
        # Running jobs are few, so their index may be scanned.
        assert not [scan for scan in scans if "jobs_running" not in scan], details


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        (
            "queue_head",
            ("jobs_scheduled (queue=?)", "lanes_open (queue=? AND pool_set>?)", "lanes_blocked (queue=?)"),
        ),
        ("open_groups", ("lanes_open (queue=? AND pool_set>?)", "PRIMARY KEY (queue=? AND pool_set=?)")),
        ("open_lanes", ("lanes_open (queue=? AND pool_set=? AND (priority,served,seq)>(?,?,?))",)),
        ("unblock_expired", ("lanes_blocked (queue=? AND wake_at<?)",)),
        ("unblock_lanes_of", ("lanes_waits_for (waits_for=?)",)),
        ("unblock_lanes_of_pool", ("lanes_waits_for (waits_for>? AND waits_for<?)",)),
        ("has_waiting_batch", ("lanes_waits_for (waits_for=? AND queue=?)",)),
        ("batch_due_at", ("PRIMARY KEY (queue=? AND lane=?)",)),
        ("next_block_end", ("lanes_blocked (queue=?)", "lanes_open (queue=? AND pool_set=?)")),
    ],
)
async def test_p12_a_claim_finds_its_lanes_by_index(
    store: SqliteStore, name: str, ways: tuple[str, ...]
) -> None:
    """No sort, and blocked lanes are not read."""
    connection = store._writer._connection
    assert connection is not None
    sql = {**dict(load_statements("claim")), **dict(load_statements("lanes"))}[name]
    details = _details(apsw.ext.query_info(connection, sql, explain_query_plan=True).query_plan)
    for way in ways:
        assert any(way in detail for detail in details), (way, details)
    assert not [detail for detail in details if "TEMP B-TREE" in detail], details


@pytest.mark.parametrize(
    ("verb", "name", "way"),
    [
        ("documents", "due", "documents_due (kind=? AND due<?)"),
        ("documents", "next_due", "documents_due (kind=? AND due>?)"),
        ("documents", "job_changes", "worklist_document (kind=? AND document=?)"),
        ("documents", "find", "documents_created (kind=? AND (created,id)<(?,?))"),
        ("documents", "find_name", "documents_name (kind=? AND name=? AND (created,id)<(?,?))"),
        ("documents", "find_state", "documents_state (kind=? AND state=? AND (created,id)<(?,?))"),
        ("prune", "expired_documents", "documents_until ((until,kind,id)>(?,?,?) AND until<?)"),
        ("prune", "ended_flow_jobs", "jobs_flow (<expr>=?)"),
        ("prune", "too_old", "jobs_ended (queue=? AND state=? AND <expr>=? AND finished>? AND finished<?)"),
    ],
)
async def test_f21_j83_documents_and_their_jobs_come_in_order_from_an_index(
    store: SqliteStore, verb: str, name: str, way: str
) -> None:
    """Kept jobs of flows do not slow down the pruning of a queue."""
    connection = store._writer._connection
    assert connection is not None
    sql = dict(load_statements(verb))[name]
    details = _details(apsw.ext.query_info(connection, sql, explain_query_plan=True).query_plan)
    assert any(way in detail for detail in details), details
    assert not [detail for detail in details if "TEMP B-TREE" in detail], details


async def test_f10_the_worklist_skips_all_rows_of_a_flow_at_once(store: SqliteStore) -> None:
    connection = store._writer._connection
    assert connection is not None
    plan = apsw.ext.query_info(
        connection, load_statements("documents").marked, explain_query_plan=True
    ).query_plan
    searches = [detail for detail in _details(plan) if "worklist" in detail]
    assert any("worklist_document (kind=? AND document>?)" in detail for detail in searches), searches
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
async def test_r2_a_search_uses_the_index_of_its_filter(store: SqliteStore, wanted: Filter, way: str) -> None:
    await store.insert([group(*map(str, range(100))), group("a", queue="rare")])
    details = await store._reads.run(lambda transaction: _plan_of(transaction, wanted))
    scans = [detail for detail in details if detail.startswith("SCAN jobs") and "INDEX" not in detail]
    assert any(way in detail for detail in details), details
    assert not scans, details


async def test_r2_a_search_that_matches_most_jobs_reads_in_order(store: SqliteStore) -> None:
    """A million seqs are not sorted before the first page."""
    await store.insert([group(*map(str, range(100)))])
    wanted = Filter(queue="default", states=(State.READY,), text="x")
    details = await store._reads.run(lambda transaction: _plan_of(transaction, wanted))
    assert "SCAN jobs" in details
    assert not [detail for detail in details if "TEMP B-TREE" in detail], details


def _plan_of(transaction: SqliteTransaction, wanted: Filter) -> list[str]:
    source = find._source(transaction, wanted, None, bounded=True)
    assert source is not None
    statement = find._statement(source, wanted, None, None)
    plan = transaction.execute(
        f"EXPLAIN QUERY PLAN {statement}\n{find.SQL.newest_first}", find._values(wanted, None, None)
    )
    return [detail for *_, detail in plan]


def _details(plan: object) -> list[str]:
    """Returns the lines of a nested query plan."""
    if plan is None:
        return []
    lines = [plan.detail]  # type: ignore[attr-defined]
    for part in plan.sub or ():  # type: ignore[attr-defined]
        lines += _details(part)
    return lines


@pytest.mark.parametrize("verb", [*VERBS, "find"])
def test_whole_jobs_are_read_in_the_order_of_their_fields(verb: str) -> None:
    """A row becomes a job by position: two swapped names would go unnoticed."""
    for name, sql in load_statements(verb):
        listed = re.search(r"SELECT (seq, id, queue, task, payload, state,.*?)\s+FROM jobs", sql, re.DOTALL)
        if listed is not None:
            assert tuple(re.split(r",\s*", listed.group(1))) == FIELDS, name
