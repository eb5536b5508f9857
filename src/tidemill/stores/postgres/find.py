"""Finds jobs that match a filter: all of them, or pages that read a bounded number of rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec
from asyncpg import Record

from tidemill.contract.reader import JobPage
from tidemill.core.filters import (
    Filter,
    as_json_text,
    check_filter,
    fold_case,
    matches_filter,
    payload_search_text,
)
from tidemill.core.jobs import Job
from tidemill.core.states import FINAL, State
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.rows import COLUMNS, job_of, json_text, text_array
from tidemill.stores.postgres.statements import load_statements
from tidemill.stores.postgres.transaction import PostgresTransaction

SQL = load_statements("find")
_JOB_CONDITIONS = dict(SQL)
MAX_ROWS_PER_STATEMENT = 1000

Fetch = Callable[..., Awaitable[list[Record]]]


Condition = tuple[str, object]
"""A part of a statement, and its value."""


async def iter_jobs(
    fetch: Fetch,
    job_filter: Filter,
    *,
    newest_first: bool,
    limit: int,
    before: int | None = None,
    within: Sequence[Condition] = (),
) -> AsyncIterator[Job]:
    """Yields the jobs that match `job_filter`, in order of their sequence number (R2). `limit`: the size of
    the first read; it does not limit the result. `before`: the sequence number of the last job already read.
    `within`: further SQL conditions."""
    check_filter(job_filter)
    if job_filter.states is not None and not job_filter.states:
        return
    portion, last = min(limit, MAX_ROWS_PER_STATEMENT), before
    while True:
        rows = await fetch(*_statement(job_filter, within, last, portion, newest_first=newest_first))
        for row in rows:
            job = job_of(row)
            if matches_filter(job_filter, job):
                yield job
        if len(rows) < portion:
            return
        last, portion = rows[-1]["seq"], MAX_ROWS_PER_STATEMENT


def _statement(
    job_filter: Filter,
    within: Sequence[Condition],
    last: int | None,
    portion: int,
    *,
    newest_first: bool,
) -> tuple[Any, ...]:
    values: list[Any] = []

    def add(piece: str, value: object) -> str:
        values.append(value)
        return piece.format(f"${len(values)}")

    pieces = [add(piece, value) for piece, value in within]
    pieces += [add(_JOB_CONDITIONS[name], value) for name, value in _conditions(job_filter)]
    if job_filter.text is not None:
        values += [fold_case(as_json_text(job_filter.text)), fold_case(job_filter.text)]
        pieces.append(SQL.text.format(quoted=f"${len(values) - 1}", plain=f"${len(values)}"))
    if last is not None:
        pieces.append(add(SQL.before if newest_first else SQL.after, last))
    order = SQL.newest_first if newest_first else SQL.oldest_first
    condition = "\n  AND ".join(pieces) or "true"
    parts = {
        "columns": COLUMNS,
        "condition": condition,
        "states": _states(job_filter),
        "order": order,
        "portion": portion,
    }
    return ((SQL.running_rows if _only_running(job_filter) else SQL.rows).format(**parts), *values)


def _conditions(job_filter: Filter) -> list[Condition]:
    named = ("ids", "id_prefix", "queue", "task", "key", "flow")
    found: list[Condition] = [
        (name, value) for name in named if (value := getattr(job_filter, name)) is not None
    ]
    found = [(name, list(value) if isinstance(value, tuple) else value) for name, value in found]
    if job_filter.tag is not None:
        found.append(("tag", json_text(job_filter.tag)))
    for bound in ("since", "until"):
        if (value := getattr(job_filter, bound)) is not None:
            found.append((f"{job_filter.time}_{bound}", value))
    return found + [("field", payload_search_text(*field)) for field in job_filter.fields]


def _states(job_filter: Filter) -> str:
    """Returns the SQL condition on the state. The states are literals, so that the query planner sees that a
    partial index matches."""
    if job_filter.states is None:
        return "true"
    states = sorted(State(state).value for state in job_filter.states)
    among = f"state IN ({', '.join(repr(state) for state in states)})"
    return f"{among} AND finished IS NOT NULL" if FINAL.issuperset(job_filter.states) else among


def _only_running(job_filter: Filter) -> bool:
    """True if the filter includes running jobs and excludes ready jobs. A filter without states gives
    False."""
    states = job_filter.states or ()
    return State.RUNNING in states and State.READY not in states


PAGE_SQL, COUNTS = load_statements("find_page"), load_statements("reader").counts
_PAGE_CONDITIONS = dict(PAGE_SQL)

SMALL_RESULT_SHARE = 0.25
"""Largest share of all jobs for which collecting seqs is as fast as reading the table."""
MAX_COLLECTED_JOBS = 250_000
"""A page that a person waits for collects at most this many seqs from an index ..."""
MAX_COLLECTED_ROWS = 20_000
"""... or this many whose rows are read one by one."""
MAX_NEWEST_JOBS = 1000
"""Reads this many of the newest jobs first: often they fill the page."""

_IN_AN_INDEX = ("id_prefix", "flow", "queue", "states")


class PostgresSearchSource(msgspec.Struct, frozen=True):
    """The source from which a search reads jobs before it applies the filter. `seq_queries`: SQL statements
    with their conditions, which read sequence numbers (`Job.seq`) from indexes. If empty, the search reads
    the whole table of jobs."""

    seq_queries: tuple[tuple[str, tuple[Condition, ...]], ...] = ()


class StatementBuilder:
    """Builds an SQL statement from pieces and collects the values of its parameters."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, piece: str, value: object) -> str:
        self.values.append(value)
        return piece.format(f"${len(self.values)}")

    def seqs(self, source: PostgresSearchSource, before: int | None) -> str:
        bounds = [] if before is None else [(PAGE_SQL.before, before)]
        return "\nUNION ALL ".join(
            "\nAND ".join((statement, *(self.add(*condition) for condition in (*conditions, *bounds))))
            for statement, conditions in source.seq_queries
        )


async def find_page(
    connection: PostgresConnection, job_filter: Filter, limit: int, cursor: int | None, scan_limit: int
) -> JobPage:
    """Returns one page of the jobs that match `job_filter`, newest first (R2, R11). `cursor`: the sequence
    number where the previous page ended. `scan_limit`: the largest number of jobs to examine."""
    check_filter(job_filter)

    async def read(transaction: PostgresTransaction) -> JobPage:
        await transaction.fetch(PAGE_SQL.plan_for_indexes)
        return await _find_in_transaction(transaction, job_filter, limit, cursor, scan_limit)

    return await connection.run(read)


async def _find_in_transaction(
    transaction: PostgresTransaction, job_filter: Filter, limit: int, cursor: int | None, scan_limit: int
) -> JobPage:
    page = await _page_of_all(transaction, job_filter, limit, cursor, min(MAX_NEWEST_JOBS, scan_limit))
    if not page.partial:
        return page
    source = await _source(transaction, job_filter)
    if source is None:
        return JobPage((), None)
    if not source.seq_queries:
        return await _page_of_all(transaction, job_filter, limit, cursor, scan_limit)
    return await _page_of_source(
        transaction, source, job_filter, limit, cursor, scan_limit if _needs_row(job_filter) else limit + 1
    )


async def _page_of_all(
    transaction: PostgresTransaction, job_filter: Filter, limit: int, before: int | None, scan_limit: int
) -> JobPage:
    if job_filter.ids is not None:
        return _page(await _matching_jobs(transaction, job_filter, limit, before), limit, None)
    builder = StatementBuilder()
    condition = "true" if before is None else builder.add(PAGE_SQL.before, before)
    lower_bound = await transaction.value(PAGE_SQL.next_of_all.format(condition, scan_limit), *builder.values)
    within = () if lower_bound is None else ((PAGE_SQL.after, lower_bound),)
    return _page(await _matching_jobs(transaction, job_filter, limit, before, *within), limit, lower_bound)


async def _page_of_source(  # noqa: PLR0917 - the arguments of find
    transaction: PostgresTransaction,
    source: PostgresSearchSource,
    job_filter: Filter,
    limit: int,
    before: int | None,
    scan_limit: int,
) -> JobPage:
    builder = StatementBuilder()
    statement = PAGE_SQL.newest_seqs.format(builder.seqs(source, before), scan_limit + 1)
    seqs = [seq for (seq,) in await transaction.fetch(statement, *builder.values)]
    lower_bound = seqs[scan_limit] if len(seqs) > scan_limit else None
    within = (PAGE_SQL.at, text_array(seqs[:scan_limit]))
    return _page(await _matching_jobs(transaction, job_filter, limit, before, within), limit, lower_bound)


async def _matching_jobs(
    transaction: PostgresTransaction, job_filter: Filter, limit: int, before: int | None, *within: Condition
) -> list[Job]:
    """Returns up to `limit` + 1 matching jobs, newest first. The additional job shows that another page
    follows."""
    found: list[Job] = []
    async for job in iter_jobs(
        transaction.fetch, job_filter, newest_first=True, limit=limit + 1, before=before, within=within
    ):
        found.append(job)
        if len(found) > limit:
            break
    return found


def _page(found: list[Job], limit: int, lower_bound: int | None) -> JobPage:
    """Makes a page from the jobs found, which are sorted from new to old. `lower_bound`: the sequence number
    of the newest job that was not examined; None if all were examined."""
    page = tuple(found[:limit])
    if len(found) > limit:
        return JobPage(page, page[-1].seq if page else None)
    return (
        JobPage(page, None)
        if lower_bound is None
        else JobPage(page, lower_bound + 1, partial=len(page) < limit)
    )


async def _source(transaction: PostgresTransaction, job_filter: Filter) -> PostgresSearchSource | None:
    """Returns where the search reads jobs: from indexes if few jobs match, else from the whole table. Returns
    None if no job can match."""
    if job_filter.flow is not None:
        return PostgresSearchSource(((PAGE_SQL.jobs, ((PAGE_SQL.flow, job_filter.flow),)),))
    if job_filter.id_prefix is not None:
        source = PostgresSearchSource(((PAGE_SQL.jobs, ((PAGE_SQL.starts_with, job_filter.id_prefix),)),))
        return PostgresSearchSource() if await _too_many_to_collect(transaction, source) else source
    states = frozenset(State if job_filter.states is None else job_filter.states)
    by_end = job_filter.time == "finished" and (job_filter.since is not None or job_filter.until is not None)
    states &= FINAL if by_end else states
    if not states:
        return None
    source = PostgresSearchSource(tuple(_indexes_for(job_filter, states)))
    if by_end:
        return PostgresSearchSource() if await _too_many_to_collect(transaction, source) else source
    return source if await _few_enough_to_collect(transaction, job_filter, states) else PostgresSearchSource()


async def _too_many_to_collect(transaction: PostgresTransaction, source: PostgresSearchSource) -> bool:
    builder = StatementBuilder()
    statement = PAGE_SQL.has_more_than.format(builder.seqs(source, None), MAX_COLLECTED_ROWS)
    return await transaction.first(statement, *builder.values) is not None


async def _few_enough_to_collect(
    transaction: PostgresTransaction, job_filter: Filter, states: frozenset[State]
) -> bool:
    total = matching = 0
    for queue, state, jobs, _ in await transaction.fetch(COUNTS):
        total += jobs
        matching += jobs * (State(state) in states and job_filter.queue in (None, queue))
    return matching <= min(SMALL_RESULT_SHARE * total, MAX_COLLECTED_JOBS)


def _indexes_for(job_filter: Filter, states: frozenset[State]) -> Iterator[tuple[str, tuple[Condition, ...]]]:
    queue: tuple[Condition, ...] = () if job_filter.queue is None else ((PAGE_SQL.queue, job_filter.queue),)
    for state in sorted(states - FINAL):
        times = (
            _times(job_filter) if job_filter.time == "due" and state in {State.SCHEDULED, State.READY} else ()
        )
        yield _PAGE_CONDITIONS[state.value], (*queue, *times)
        if state is State.RUNNING:
            yield PAGE_SQL.bulk_claimed, queue
    named = "" if queue else f"\nAND {PAGE_SQL.any_queue}"
    for state in sorted(states & FINAL):
        times = _times(job_filter) if job_filter.time == "finished" else ()
        for piece in (PAGE_SQL.ended_without_flow, PAGE_SQL.ended_in_flows) if times else (PAGE_SQL.ended,):
            yield piece.format(state.value) + named, (*queue, *times)


def _times(job_filter: Filter) -> tuple[Condition, ...]:
    bounds = [(bound, getattr(job_filter, bound)) for bound in ("since", "until")]
    return tuple(
        (_PAGE_CONDITIONS[f"{job_filter.time}_{name}"], value) for name, value in bounds if value is not None
    )


def _needs_row(job_filter: Filter) -> bool:
    """True if the filter needs columns that are in no index, so that the row of each job must be read."""
    return job_filter != Filter(**{name: getattr(job_filter, name) for name in _IN_AN_INDEX})
