"""Finds and amends the jobs that match a filter. The SQL statement contains only the conditions that the
filter sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from tidemill.contract.coordination import worker_topic
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
from tidemill.core.operator_changes import AmendResult, OperatorChange, RetryJobs, applies_to, apply_change
from tidemill.core.states import FINAL, State
from tidemill.core.validation import MAX_NAME_CHARS
from tidemill.stores.sqlite import checkpoints, settle
from tidemill.stores.sqlite.rows import job_of, text_of
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction

SQL = load_statements("find")

SMALL_RESULT_SHARE = 0.25
"""Largest share of all jobs for which collecting and sorting seqs is as fast as reading the table."""

SMALL_NEXT_PAGE_SHARE = 0.02
"""The same for a page after the first: seqs are collected again for every page, while a table scan
continues where the last page ended."""

MAX_COLLECTED_JOBS = 300_000
"""A page that a person waits for collects at most this many seqs."""

MAX_NEWEST_JOBS = 2000
"""Reads this many of the newest jobs first: often they fill the page."""

LAST_CHARACTER = "\U0010ffff"
"""The last character in the order of Unicode."""

_ANY_CASE = re.compile("[A-Za-z]")
_DUE = frozenset({State.SCHEDULED, State.READY})
_IN_AN_INDEX = ("ids", "id_prefix", "flow", "queue", "states")


class SqliteSearchSource(msgspec.Struct, frozen=True):
    """The jobs that a search reads before it applies the filter. At most one field is set; if none is set,
    the search reads the whole table.

    - `seq_queries`: SQL statements that read sequence numbers (`Job.seq`) from indexes, unsorted
    - `condition`: an SQL condition that selects the jobs with given ids or the jobs of one flow"""

    condition: str = ""
    seq_queries: tuple[str, ...] = ()

    def within(self, bounds: list[str]) -> str:
        """Returns one SQL statement that selects the sequence numbers of all `seq_queries`. `bounds` are
        conditions added to each query."""
        return "\nUNION ALL ".join(_all([statement, *bounds]) for statement in self.seq_queries)


def find(
    transaction: SqliteTransaction, job_filter: Filter, limit: int, cursor: int | None, scan_limit: int | None
) -> JobPage:
    """Returns one page of the jobs that match `job_filter`, newest first (R2, R11). `cursor`: the sequence
    number (`Job.seq`) where the previous page ended. `scan_limit`: the largest number of jobs to examine."""
    source = _source(transaction, check_filter(job_filter), cursor, bounded=scan_limit is not None)
    if source is None:
        return JobPage((), None)
    if scan_limit is None or not source.seq_queries or _needs_row(job_filter):
        return _page(transaction, source, job_filter, limit, cursor, scan_limit)
    page = _page(transaction, SqliteSearchSource(), job_filter, limit, cursor, MAX_NEWEST_JOBS)
    return _page(transaction, source, job_filter, limit, cursor, limit + 1) if page.partial else page


def _page(  # noqa: PLR0917 - the arguments of find
    transaction: SqliteTransaction,
    source: SqliteSearchSource,
    job_filter: Filter,
    limit: int,
    cursor: int | None,
    scan_limit: int | None,
) -> JobPage:
    is_bounded = scan_limit is not None and job_filter.ids is None
    lower_bound = _lower_bound(transaction, source, job_filter, cursor, scan_limit) if is_bounded else None
    found = list(islice(_rows(transaction, source, job_filter, cursor, lower_bound), limit + 1))
    page = tuple(found[:limit])
    if len(found) > limit:
        return JobPage(page, page[-1].seq if page else None)
    return (
        JobPage(page, None)
        if lower_bound is None
        else JobPage(page, lower_bound + 1, partial=len(page) < limit)
    )


def oldest_first(transaction: SqliteTransaction, job_filter: Filter) -> Iterator[Job]:
    """Yields the jobs that match `job_filter`, oldest first. `amend` changes them in this order (J70)."""
    source = _source(transaction, check_filter(job_filter), None, bounded=False)
    return iter(()) if source is None else _rows(transaction, source, job_filter, newest_first=False)


def _rows(
    transaction: SqliteTransaction,
    source: SqliteSearchSource,
    job_filter: Filter,
    before: int | None = None,
    lower_bound: int | None = None,
    *,
    newest_first: bool = True,
) -> Iterator[Job]:
    """Yields the jobs of `source` that match `job_filter`. Reads only jobs with a sequence number below
    `before` and above `lower_bound`."""
    statement = _statement(source, job_filter, before, lower_bound)
    order = SQL.newest_first if newest_first else SQL.oldest_first
    rows = transaction.execute(f"{statement}\n{order}", _values(job_filter, before, lower_bound))
    try:
        for row in rows:
            job = job_of(row)
            if matches_filter(job_filter, job):
                yield job
    finally:
        rows.close()  # a full page stops in the middle of the statement


def _statement(
    source: SqliteSearchSource, job_filter: Filter, before: int | None, lower_bound: int | None
) -> str:
    pieces = bounds = _bounds(before, lower_bound)
    if source.seq_queries:
        pieces = [f"seq IN ({source.within(bounds)})"]
    pieces = [*pieces, *_conditions(job_filter)]
    return f"{SQL.rows}\nWHERE {_all(pieces)}" if pieces else str(SQL.rows)


def _bounds(before: int | None, lower_bound: int | None) -> list[str]:
    return [SQL.before] * (before is not None) + [SQL.after] * (lower_bound is not None)


def _source(
    transaction: SqliteTransaction, job_filter: Filter, before: int | None, *, bounded: bool
) -> SqliteSearchSource | None:
    """Returns where the search reads jobs: from indexes if few jobs match, else from the whole table. Returns
    None if no job can match. `before`: the page's cursor. `bounded`: the search has a scan limit."""
    if job_filter.ids is not None or job_filter.flow is not None:
        return SqliteSearchSource(SQL.ids if job_filter.ids is not None else SQL.flow)
    if job_filter.id_prefix is not None:
        source = SqliteSearchSource(seq_queries=(SQL.id_prefix,))
        return (
            SqliteSearchSource()
            if bounded and _too_many_to_collect(transaction, source, job_filter)
            else source
        )
    states = frozenset(State if job_filter.states is None else job_filter.states)
    by_end = job_filter.time == "finished" and bool(_times(job_filter))
    states &= FINAL if by_end else states
    if not states:
        return None
    source = SqliteSearchSource(seq_queries=tuple(_indexes_for(job_filter, states)))
    if by_end:
        return (
            SqliteSearchSource()
            if bounded and _too_many_to_collect(transaction, source, job_filter)
            else source
        )
    share = SMALL_RESULT_SHARE if before is None or bounded else SMALL_NEXT_PAGE_SHARE
    is_small = _few_enough_to_sort(
        transaction, job_filter, states, share, MAX_COLLECTED_JOBS if bounded else None
    )
    return source if is_small else SqliteSearchSource()


def _too_many_to_collect(
    transaction: SqliteTransaction, source: SqliteSearchSource, job_filter: Filter
) -> bool:
    """True if the indexes of `source` contain more than 300 000 matching jobs."""
    values = {**_values(job_filter, None, None), "most": MAX_COLLECTED_JOBS}
    return transaction.execute(SQL.has_more_than.format(source.within([])), values).fetchone() is not None


def _few_enough_to_sort(
    transaction: SqliteTransaction,
    job_filter: Filter,
    states: frozenset[State],
    share: float,
    most: int | None,
) -> bool:
    total = matching = 0
    for queue, state, jobs in transaction.counts():
        total += jobs
        matching += jobs * (state in states and job_filter.queue in (None, queue))
    return matching <= share * total and (most is None or matching <= most)


def _lower_bound(
    transaction: SqliteTransaction,
    source: SqliteSearchSource,
    job_filter: Filter,
    before: int | None,
    most: int | None,
) -> int | None:
    """Returns the sequence number of the newest job that is too old for this page; None if no job is too old.
    `most`: how many jobs below `before` a page may examine."""
    bounds = _bounds(before, None)
    if source.seq_queries:
        statement = SQL.next_of_seqs.format(source.within(bounds))
    else:
        statement = SQL.next_of_all.format(_all([source.condition or "true", *bounds]))
    values = {**_values(job_filter, before, None), "most": most}
    found = transaction.execute(statement, values).fetchone()
    return None if found is None else int(found[0])


def _needs_row(job_filter: Filter) -> bool:
    """True if the filter needs columns that are in no index, so that the row of each job must be read."""
    known = {name: getattr(job_filter, name) for name in _IN_AN_INDEX}
    return job_filter != Filter(**known)


def _conditions(job_filter: Filter) -> list[str]:
    pieces = dict(SQL)
    named = ("ids", "flow", "queue", "states", "task", "key", "tag")
    found = [pieces[name] for name in named if getattr(job_filter, name) is not None]
    found += [SQL.starts_with] if job_filter.id_prefix is not None else []
    found += _times(job_filter)
    found += [SQL.field.replace(":field_", f":{name}") for name in _fields(job_filter)]
    if job_filter.text is not None:
        found.append(SQL.text if _ANY_CASE.search(as_json_text(job_filter.text)) else SQL.caseless_text)
    return found


def _times(job_filter: Filter) -> list[str]:
    pieces = dict(SQL)
    bounds = (bound for bound in ("since", "until") if getattr(job_filter, bound) is not None)
    return [pieces[f"{job_filter.time}_{bound}"] for bound in bounds]


def _indexes_for(job_filter: Filter, states: frozenset[State]) -> Iterator[str]:
    pieces = dict(SQL)
    for state in sorted(states - FINAL):
        times = _times(job_filter) if job_filter.time == "due" and state in _DUE else []
        yield _all([pieces[str(state)], *_queue(job_filter, named=bool(times)), *times])
    if states & FINAL:
        times = _times(job_filter) if job_filter.time == "finished" else []
        yield _all([SQL.ended, *_queue(job_filter, named=True), *times])


def _queue(job_filter: Filter, *, named: bool) -> list[str]:
    """Returns the SQL condition on the queue, in a list that may be empty. `named=True`: never empty, because
    SQLite needs a condition to use an index that begins with the queue."""
    return [SQL.queue] if job_filter.queue is not None else [SQL.any_queue] if named else []


def _all(pieces: list[str]) -> str:
    return "\n  AND ".join(pieces)


def _values(job_filter: Filter, before: int | None, lower_bound: int | None) -> dict[str, Any]:
    return {
        "before": before,
        "lower_bound": lower_bound,
        "ids": text_of(job_filter.ids),
        "id_prefix": job_filter.id_prefix,
        "id_prefix_end": None
        if job_filter.id_prefix is None
        else job_filter.id_prefix + LAST_CHARACTER * MAX_NAME_CHARS,
        "flow": job_filter.flow,
        "queue": job_filter.queue,
        "states": text_of(list(State) if job_filter.states is None else job_filter.states),
        "task": job_filter.task,
        "key": job_filter.key,
        "tag": None if job_filter.tag is None else text_of(job_filter.tag),
        "since": job_filter.since,
        "until": job_filter.until,
        "text": None if job_filter.text is None else fold_case(job_filter.text),
        "quoted_text": None if job_filter.text is None else fold_case(as_json_text(job_filter.text)),
        **_fields(job_filter),
    }


def _fields(job_filter: Filter) -> dict[str, str]:
    return {f"field_{number}": payload_search_text(*field) for number, field in enumerate(job_filter.fields)}


def amend(
    transaction: SqliteTransaction, job_filter: Filter, change: OperatorChange, limit: int
) -> AmendResult:
    done: list[str] = []
    unchanged: list[str] = []
    selected = [job.id for job in islice(oldest_first(transaction, job_filter), limit)]
    for name in selected:
        # An earlier change of this call may have released or ended it: read it again.
        job = transaction.by_id([name])[name]
        if applies_to(change, job):
            _change(transaction, job, change)
            done.append(job.id)
        else:
            unchanged.append(job.id)
    return AmendResult(tuple(done), tuple(unchanged))


def _change(transaction: SqliteTransaction, before: Job, change: OperatorChange) -> None:
    after = apply_change(change, before, transaction.now)
    if after is None:
        transaction.drop(before)
    else:
        transaction.save(before, after)
    if isinstance(change, RetryJobs):
        checkpoints.forget_begun_steps(transaction, before.seq)
    if before.state is State.RUNNING and before.worker is not None:
        transaction.topics.add(worker_topic(before.worker))
        settle.abandon_units(transaction, before)
    if after is None or after.state in FINAL:
        transaction.release_successors([before.id])
