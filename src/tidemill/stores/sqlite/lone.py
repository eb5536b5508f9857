"""One plain ready job in one insert: the commonest call, as one statement.

Same effect as the general way, by the trigger on the view `lone`; whatever is out of the
ordinary is left to the general way.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from tidemill.core.job import Group, problem_with
from tidemill.core.queues import Inserted, Verdict
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load

_INSERT = load("insert").lone


def insert_lone(
    connection: apsw.Connection, wall: float, boot: float, groups: Sequence[Group]
) -> list[list[Inserted]] | None:
    """None when the job needs the general way; nothing has changed then."""
    if len(groups) != 1 or len(groups[0].jobs) != 1:
        return None
    group = groups[0]
    (job,) = group.jobs
    if job.unique is not None or job.delay or job.at is not None or problem_with(group) is not None:
        return None
    row = (
        job.id, group.queue, job.task, job.payload.decode(), job.priority, job.key or "", wall, boot,
        None if job.expires is None else wall + job.expires,
        job.timeout, job.trace, text_of(job.tags) if job.tags else None,
    )  # fmt: skip
    before = connection.total_changes()
    connection.execute(_INSERT, row)
    if connection.total_changes() == before:
        return None
    return [[Inserted(Verdict.ACCEPTED, job.id)]]
