"""Collects the Redis commands that write jobs and documents together with their indexes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tidemill.core.documents import Document, DocumentKind
from tidemill.core.jobs import Job
from tidemill.core.needs import lane_group
from tidemill.core.states import FINAL, LIVE, PENDING, State
from tidemill.engine import queries
from tidemill.engine.changes import Changes, JobUpdate
from tidemill.engine.queries import Rows
from tidemill.stores.redis import keys, rows
from tidemill.stores.redis.job_codec import STATE_LETTERS, encode_job, index_member, lane_member
from tidemill.stores.redis.protocol import CommandArgument

MAX_ARGUMENTS_PER_COMMAND = 2000
"""Arguments of one command. Lua can pass about 8 000 to Redis."""

LANE_DELETED = b"-"
"""Stands for a lane's row after its last job has left. If a new job arrived in between, the row is new."""


class CommandBatch:
    """Collects the writes of one transaction as Redis commands. Writes of the same kind to the same Redis key
    become one command. Commands that remove index entries come before commands that add entries."""

    def __init__(self) -> None:
        self._removed: dict[tuple[str, str], list[CommandArgument]] = defaultdict(list)
        self._added: dict[tuple[str, str], list[CommandArgument]] = defaultdict(list)
        self._deletable_counts: Counter[tuple[str, str]] = Counter()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._others: list[tuple[CommandArgument, ...]] = []
        self._lanes: dict[tuple[str, str], bytes] = {}

    def add(self, key: str, score: float, member: CommandArgument) -> None:
        self._added["ZADD", key] += (repr(float(score)), member)

    def remove(self, key: str, member: CommandArgument) -> None:
        self._removed["ZREM", key].append(member)

    def add_to_set(self, key: str, member: CommandArgument) -> None:
        self._added["SADD", key].append(member)

    def remove_from_set(self, key: str, member: CommandArgument) -> None:
        self._removed["SREM", key].append(member)

    def set(self, key: str, field: CommandArgument, value: CommandArgument) -> None:
        self._added["HSET", key] += (field, value)

    def unset(self, key: str, field: CommandArgument) -> None:
        self._removed["HDEL", key].append(field)

    def count(self, key: str, field: str, by: int) -> None:
        self._counts[key, field] += by

    def count_or_delete(self, key: str, field: str, by: int) -> None:
        """Adds `by` to a counter in a hash. The field is deleted when the counter reaches zero."""
        self._deletable_counts[key, field] += by

    def command(self, *words: CommandArgument) -> None:
        """Adds a Redis command, or a command that `commit.lua` defines. The second word must be the key."""
        self._others.append(words)

    def touch_lane(self, queue: str, lane: str, row: bytes = b"") -> None:
        """Records that a lane changes, so that `commit.lua` sorts it again. `row`: the lane's new row; empty
        if only the lane's jobs change."""
        self._lanes[queue, lane] = row or self._lanes.get((queue, lane), b"")

    def words(self) -> Iterator[CommandArgument]:
        commands = [*self._commands()]
        yield len(commands)
        for command in commands:
            yield len(command)
            yield from command
        yield len(self._lanes)
        for (queue, lane), row in self._lanes.items():
            yield from (queue, lane, lane_group(lane), row)

    def _commands(self) -> Iterator[tuple[CommandArgument, ...]]:
        for commands in (self._removed, self._added):
            for (command, key), arguments in commands.items():
                for at in range(0, len(arguments), MAX_ARGUMENTS_PER_COMMAND):
                    yield command, key, *arguments[at : at + MAX_ARGUMENTS_PER_COMMAND]
        for command, counts in (("HINCRBY", self._counts), ("COUNT_OR_DELETE", self._deletable_counts)):
            yield from ((command, key, field, by) for (key, field), by in counts.items() if by)
        yield from self._others


def write_job(writes: CommandBatch, update: JobUpdate) -> None:
    before, after = update.before, update.after
    if before is not None:
        _remove_from_indexes(writes, before)
    if after is not None:
        writes.set(keys.JOBS, after.id, encode_job(after))
        _add_to_indexes(writes, after)
        if before is None:
            number = str(after.seq // keys.JOBS_PER_PAGE)
            writes.set(keys.page(after.seq), after.seq % keys.JOBS_PER_PAGE, after.id)
            writes.add(keys.PAGES, int(number), number)
            if after.flow is not None:
                writes.add(keys.flow_jobs(after.flow.id), after.seq, index_member(after))
    elif before is not None:
        _delete_job(writes, before)


def _delete_job(writes: CommandBatch, job: Job) -> None:
    writes.unset(keys.JOBS, job.id)
    writes.command(
        "DELETE_FROM_PAGE",
        keys.page(job.seq),
        str(job.seq // keys.JOBS_PER_PAGE),
        job.seq % keys.JOBS_PER_PAGE,
    )
    writes.command("DEL", keys.attempts(job.id))
    writes.command("DEL", keys.checkpoints(job.id))
    writes.command("DELETE_LOGS", keys.logs(job.id), job.id)
    if job.flow is not None:
        writes.remove(keys.flow_jobs(job.flow.id), index_member(job))


def _add_to_indexes(writes: CommandBatch, job: Job) -> None:
    name, queue = index_member(job), job.queue
    writes.count(keys.COUNTS, keys.count(job.state, queue), 1)
    match job.state:
        case State.READY:
            writes.add(keys.lane(queue, job.lane), job.priority, lane_member(job))
            writes.touch_lane(queue, job.lane)
        case State.SCHEDULED:
            writes.add(keys.scheduled(queue), job.due, name)
            writes.count(keys.COUNTS, keys.retrying(queue), int(job.attempts > 0))
        case State.RUNNING:
            writes.set(keys.running(queue), name, repr(job.lease))
            writes.add_to_set(keys.held(job.worker or ""), name)
            writes.count_or_delete(
                keys.RUNNING_BY_KEY, keys.running_by_key(queue, job.key), int(job.key != "")
            )
        case State.WAITING if job.after is not None:
            writes.add(keys.successors(job.after), job.seq, name)
        case state if state in FINAL and job.flow is not None:
            writes.add(keys.ended_flow_jobs(queue, state), job.finished or 0.0, name)
            writes.set(keys.flow_job_states(job.flow.id), job.id, STATE_LETTERS[state])
        case state if state in FINAL:
            writes.add(keys.ended(queue, state), job.finished or 0.0, name)
    if job.expires is not None and job.state in PENDING:
        writes.add(keys.EXPIRING, job.expires, name)
    if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
        writes.add(keys.unique(queue, job.unique_key), job.seq, name)


def _remove_from_indexes(writes: CommandBatch, job: Job) -> None:
    name, queue = index_member(job), job.queue
    writes.count(keys.COUNTS, keys.count(job.state, queue), -1)
    match job.state:
        case State.READY:
            writes.remove(keys.lane(queue, job.lane), lane_member(job))
            writes.touch_lane(queue, job.lane)
        case State.SCHEDULED:
            writes.remove(keys.scheduled(queue), name)
            writes.count(keys.COUNTS, keys.retrying(queue), -int(job.attempts > 0))
        case State.RUNNING:
            writes.unset(keys.running(queue), name)
            writes.remove_from_set(keys.held(job.worker or ""), name)
            writes.count_or_delete(
                keys.RUNNING_BY_KEY, keys.running_by_key(queue, job.key), -int(job.key != "")
            )
        case State.WAITING if job.after is not None:
            writes.remove(keys.successors(job.after), name)
        case state if state in FINAL and job.flow is not None:
            writes.remove(keys.ended_flow_jobs(queue, state), name)
            writes.unset(keys.flow_job_states(job.flow.id), job.id)
        case state if state in FINAL:
            writes.remove(keys.ended(queue, state), name)
    if job.expires is not None and job.state in PENDING:
        writes.remove(keys.EXPIRING, name)
    if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
        writes.remove(keys.unique(queue, job.unique_key), name)


DocumentIndex = tuple[str, float, str]
"""Key, score and member of one entry of a sorted set."""


def write_documents(writes: CommandBatch, changes: Changes, loaded: Rows) -> None:
    """Adds the commands that write changed documents and their worklist entries. `loaded`: the rows before
    the change."""
    for (kind, id_), after in changes.documents.items():
        _write_document(writes, kind, id_, loaded.get(queries.DocumentById(kind, id_)), after)
    for at in range(0, len(changes.taken), MAX_ARGUMENTS_PER_COMMAND):
        writes.command("TAKE_WORK", keys.WORKLIST, *changes.taken[at : at + MAX_ARGUMENTS_PER_COMMAND])
    jobs: dict[tuple[DocumentKind, str], list[str]] = {}
    for mark in changes.work_marks:
        jobs.setdefault(mark.document, []).append(mark.job)
    for (kind, id_), some in jobs.items():
        for at in range(0, len(some), MAX_ARGUMENTS_PER_COMMAND):
            writes.command(
                "MARK_DOCUMENT", keys.WORKLIST, kind.value, id_, *some[at : at + MAX_ARGUMENTS_PER_COMMAND]
            )


def document_indexes(document: Document) -> Iterator[DocumentIndex]:
    """Yields the index entries that a document must have, as (key, score, member)."""
    for state in ("", document.state):
        for name in ("", document.name):
            yield keys.document_index(document.kind, state, name), document.created, document.id
    if document.due is not None:
        yield keys.due_documents(document.kind), document.due, document.id
    if document.until is not None:
        yield keys.DOCUMENT_EXPIRY, document.until, keys.document(document.kind, document.id)


def _write_document(
    writes: CommandBatch, kind: DocumentKind, id_: str, before: Document | None, after: Document | None
) -> None:
    old_indexes = () if before is None else tuple(document_indexes(before))
    new_indexes = () if after is None else tuple(document_indexes(after))
    for key, _, member in set(old_indexes) - set(new_indexes):
        writes.remove(key, member)
    for key, score, member in set(new_indexes) - set(old_indexes):
        writes.add(key, score, member)
    if before is not None:
        writes.count_or_delete(keys.document_counts(kind), before.state, -1)
    if after is not None:
        writes.count_or_delete(keys.document_counts(kind), after.state, 1)
        writes.set(keys.documents(kind), id_, rows.encode_document(after))
    else:
        writes.unset(keys.documents(kind), id_)
    if before is not None and (
        after is None or after.revision <= before.revision
    ):  # a new document of this id
        writes.command("DELETE_WORK", keys.WORKLIST, kind.value, id_)
