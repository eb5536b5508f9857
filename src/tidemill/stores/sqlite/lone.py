"""One plain job in one insert: the commonest call, in as few statements as it takes.

Same effect as the general way; whatever is out of the ordinary (a known id, a unique key,
a length limit, a bad field) is left to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.wakeups import queue_topic
from tidemill.core.job import Group, problem_with
from tidemill.core.queues import Inserted, Verdict
from tidemill.core.states import State
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

_INSERT = load("insert").lone


def insert_lone(step: Transaction, groups: Sequence[Group]) -> list[list[Inserted]] | None:
    if len(groups) != 1 or len(groups[0].jobs) != 1:
        return None
    group = groups[0]
    (job,) = group.jobs
    if job.unique is not None or job.delay or job.at is not None or problem_with(group) is not None:
        return None
    queue = step.queue(group.queue)
    if not queue.known or queue.settings.max_length is not None:
        return None
    now = step.now
    expires = None if job.expires is None else now + job.expires
    tags = text_of(job.tags) if job.tags else None
    row = (
        job.id, group.queue, job.task, job.payload.decode(), job.priority, job.key or "",
        now, expires, job.timeout, job.trace, tags,
    )  # fmt: skip
    connection = step.connection
    connection.execute(_INSERT, row)
    if not connection.changes():
        return None
    step.counted(group.queue, None, State.READY, 1)
    step.topics.add(queue_topic(group.queue))
    step.arrived(group.queue, job.key or "", (job.priority, now, connection.last_insert_rowid()))
    return [[Inserted(Verdict.ACCEPTED, job.id)]]
