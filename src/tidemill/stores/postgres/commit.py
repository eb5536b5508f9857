"""What a step made of its rows is written: all of it in one call.

The parts are named as the parameters of `tidemill.commit_step`. Most are lists of rows, sent as JSON.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import asdict

from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES
from tidemill.engine import wants
from tidemill.engine.changes import Changes
from tidemill.engine.wants import Rows
from tidemill.stores.postgres import commit_books, commit_lanes
from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.courses import row_of as course_row
from tidemill.stores.postgres.rows import checkpoint_row, row_of, text_of, worker_row
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.view import View

SQL = load("commit")
Parts = dict[str, Any]

_NOT_JSON = frozenset({"gone_jobs", "picked", "admitted", "attempts_kept", "logs_kept", "taken"})
PARTS: tuple[str, ...] = tuple(re.findall(r"(\w+) =>", SQL.commit))
"""In the order they are sent."""


async def commit(view: View, changes: Changes, rows: Rows) -> None:
    parts: Parts = {
        "picked": changes.picked,
        "attempts_kept": ATTEMPTS_KEPT,
        "logs_kept": LOG_LINES,
        **_jobs(changes),
        **commit_lanes.parts(changes, rows),
        **_kept(changes),
        **_checkpoints(changes, rows),
        **_details(changes),
        **commit_books.parts(changes, view.numbers.wall),
        **_courses(changes),
    }
    if changes.pool_history:
        parts["pool_minutes"] = await commit_books.pool_minutes(view, changes)
    await view.fetch(SQL.commit, *(_sent(name, parts.get(name)) for name in PARTS))


def _sent(name: str, part: Any) -> Any:
    if name in _NOT_JSON:
        return part if part != [] else None
    return text_of(part) if part else None


def _jobs(changes: Changes) -> Parts:
    gone = [moved.before.id for moved in changes.jobs if moved.after is None and moved.before is not None]
    return {
        "gone_jobs": gone,
        "new_jobs": [row_of(moved.after) for moved in changes.jobs if moved.after is not None],
    }


def _courses(changes: Changes) -> Parts:
    after = changes.courses.items()
    return {
        "new_courses": [course_row(course) for _, course in after if course is not None],
        "gone_courses": [{"kind": kind, "id": id_} for (kind, id_), course in after if course is None],
        "new_stirs": [
            {"kind": stir.course[0], "course": stir.course[1], "job": stir.job} for stir in changes.stirs
        ],
        "taken": words(changes.taken),
    }


def _kept(changes: Changes) -> Parts:
    return {
        "ids": [
            {
                "id": id_,
                "verdict": known.verdict,
                "job": known.id,
                "fence": known.fence,
                "claim": known.claim,
                "wall": known.term.wall,
                "boot": known.term.boot,
                "boot_id": known.term.boot_id,
            }
            for id_, known in changes.remembered.items()
        ],
        "admitted": words(changes.arrivals),
        "new_workers": [worker_row(known) for known in changes.workers.values()],
    }


def _checkpoints(changes: Changes, rows: Rows) -> Parts:
    """Only those that are others: a result may be large."""
    kept: list[Parts] = []
    forgotten: list[Parts] = []
    for job, after in changes.checkpoints.items():
        before = {known.step: known for known in rows[wants.StepsOf(job)] or ()}
        kept += [checkpoint_row(job, known) for known in after if before.get(known.step) != known]
        gone = before.keys() - {known.step for known in after}
        forgotten += [{"job": job, "name": step.name, "arguments": step.arguments} for step in gone]
    return {"new_checkpoints": kept, "gone_checkpoints": forgotten}


def _details(changes: Changes) -> Parts:
    return {
        "new_attempts": [
            {"job": job, **asdict(one), "error": None if one.error is None else text_of(one.error)}
            for job, of_job in changes.attempts.items()
            for one in of_job
        ],
        "new_logs": [{"job": job, **asdict(one)} for job, of_job in changes.logs.items() for one in of_job],
        "minutes": [
            {"queue": queue, "minute": minute, **counts}
            for (queue, minute), counts in changes.history.items()
        ],
    }
