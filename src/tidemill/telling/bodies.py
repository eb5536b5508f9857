"""What is told of a job, a flow or a pool. Payloads and results are the application's: only it tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tidemill.contract.pools import PoolView
from tidemill.core.courses import Course
from tidemill.core.job import Error, Job
from tidemill.core.states import State
from tidemill.tasks.redaction import EventTexts, TaskSecrets


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has ended, as a function that says what is told of it gets it. `arguments` and `result` are
    plain data as they are; `error` and `reason` are without the job's secrets."""

    id: str
    task: str
    queue: str
    state: State
    attempts: int
    generation: int
    created: float
    finished: float
    arguments: Any
    result: Any
    error: Error | None
    reason: str | None
    tags: tuple[str, ...]


def ended(job: Job, secrets: TaskSecrets) -> Ended:
    """The texts are without secrets: they are not what the application decided to tell."""
    shown = EventTexts(secrets, job.task, job.payload).text
    return Ended(
        id=job.id,
        task=job.task,
        queue=job.queue,
        state=job.state,
        attempts=job.attempts,
        generation=job.generation,
        created=job.created,
        finished=job.finished or job.created,
        arguments=_plain(job.payload),
        result=None if job.result is None else _plain(job.result),
        error=job.error and _shown_error(job.error, shown),
        reason=job.reason and shown(job.reason),
        tags=job.tags,
    )


def _shown_error(error: Error, shown: Callable[[str], str]) -> Error:
    traceback = error.traceback and shown(error.traceback)
    return msgspec.structs.replace(error, message=shown(error.message), traceback=traceback)


def of_job(job: Ended) -> dict[str, Any]:
    told = {name: getattr(job, name) for name in _TOLD}
    error = None if job.error is None else {"type": job.error.type, "message": job.error.message}
    return {"job": told | {"error": error}}


def of_flow(course: Course, state: str) -> dict[str, Any]:
    return {"flow": {"id": course.id, "name": course.name, "state": state, "created": course.created}}


def of_pool(view: PoolView) -> dict[str, Any]:
    last = view.closures[-1] if view.closures else None
    by_hand = view.closed
    return {
        "pool": {
            "name": view.name,
            "key": view.key,
            "reason": "by hand" if by_hand else None if last is None else str(last.reason),
            "until": by_hand.until if by_hand else None if last is None else last.until,
        }
    }


def _plain(text: bytes) -> Any:
    """As text where it is not JSON, as what a foreign producer sent may be."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text.decode(errors="replace")


_TOLD = ("id", "task", "queue", "state", "attempts", "generation", "created", "finished", "reason", "tags")
