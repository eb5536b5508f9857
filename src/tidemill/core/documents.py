"""Documents: flows and schedules, which create jobs, and records such as tokens or audit entries.

To advance a document, a worker sends the store the new version and the new jobs. The store accepts both, or
neither if another worker was faster.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidemill.core.jobs import Error, NewJob
from tidemill.core.states import State
from tidemill.core.validation import problem_with_name

MAX_CHANGES_PER_DOCUMENT, MAX_JOBS_PER_ADVANCE = 500, 250
"""The most job changes that a worklist has per document, and the most jobs of an advance, so that no
transaction takes long."""
MAX_BYTES_PER_ADVANCE = 1024 * 1024
"""The most payload bytes of an advance, for the same reason."""


class DocumentKind(StrEnum):
    """The kinds of documents."""

    FLOW = "flow"
    SCHEDULE = "schedule"
    RECORD = "record"


ADVANCED_KINDS = (DocumentKind.FLOW, DocumentKind.SCHEDULE)
"""The kinds that workers advance. A record only changes when a program writes it."""


REMEMBERED_KINDS = frozenset({DocumentKind.FLOW})
"""The kinds whose ids stay known after deletion: a flow that is sent again must not run again. The id of a
schedule or a record is free at once."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A stored document. All times are wall times.

    - `record`: the content as JSON.
    - `revision`: 1 at first; it grows by one with every advance.
    - `due`: when the document has to be advanced even if no job has changed.
    - `finished`: when the document ended.
    - `until`: when the document may be deleted."""

    kind: DocumentKind
    id: str
    name: str
    state: str
    created: float
    revision: int
    record: bytes
    due: float | None = None
    finished: float | None = None
    until: float | None = None


class DocumentUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The new version of a document.

    - `due`: the wall time of the next advance.
    - `due_in`: the seconds until the next advance; if given, it replaces `due`.
    - `keep`: if given, the document ends now and is kept for this many seconds."""

    name: str
    state: str
    record: bytes
    due: float | None = None
    due_in: float | None = None
    keep: float | None = None


class DocumentJob(msgspec.Struct, frozen=True):
    """A job that an advance creates. If `error` is set, the job could not be built and is stored as failed
    with this error."""

    queue: str
    job: NewJob
    error: Error | None = None


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """A request to change one document.

    - `expected`: the revision that the change is based on, 0 for a new document.
    - `next`: the new version. None deletes the document but not its jobs; a flow cannot be deleted so.
    - `jobs`: the jobs to create.
    - `taken`: the numbers of the job changes that this advance has handled (`JobChange.number`).
    - `requeue`: True puts the document on the worklist again at once."""

    kind: DocumentKind
    id: str
    expected: int
    next: DocumentUpdate | None
    jobs: tuple[DocumentJob, ...] = ()
    taken: tuple[int, ...] = ()
    requeue: bool = False


class AdvanceResult(msgspec.Struct, frozen=True):
    """The store's answer to an advance.

    - `done`: False if nothing changed, because the document has another revision or was deleted.
    - `document`: the current version, None if there is none.
    - `jobs`: one id per requested job, in order. If a job's unique key is held, it is the holder's id."""

    done: bool
    document: Document | None
    jobs: tuple[str, ...] = ()


class JobChange(msgspec.Struct, frozen=True):
    """A change of a document's job: the job has reached or left a final state.

    - `number`: identifies the change.
    - `job`: the id of the job; empty if the document is on the worklist for another reason.
    - `state`: the current state of the job, None if the job was deleted."""

    number: int
    job: str
    state: State | None


class WorkItem(msgspec.Struct, frozen=True):
    """A document that has to be advanced. `changes` lists the changes of its jobs since the last advance."""

    document: Document
    changes: tuple[JobChange, ...] = ()


class Worklist(msgspec.Struct, frozen=True):
    """The documents that have to be advanced. `next_due` is the number of seconds until the next document is
    due, None if none will be due."""

    work_items: tuple[WorkItem, ...]
    next_due: float | None = None


def problem_with_advance(advance: Advance) -> str | None:
    """Returns why an advance is invalid, naming the field; None if it is valid."""
    names = [("id", advance.id)]
    if advance.next is not None:
        names += [("name", advance.next.name), ("state", advance.next.state)]
    for field, name in names:
        if problem := problem_with_name(field, name):
            return problem
    if advance.next is None and advance.kind is DocumentKind.FLOW:
        return "next: must not be None, or its jobs would stay for ever; let the flow end with keep=0"
    return _problem_with_record(advance) if advance.kind is DocumentKind.RECORD else None


def _problem_with_record(advance: Advance) -> str | None:
    if advance.requeue:
        return "requeue: must be False, nobody would come to advance a record"
    if advance.next is not None and (advance.next.due, advance.next.due_in) != (None, None):
        return "due: must be None, nobody would come to advance a record"
    return None


def apply_advance(before: Document | None, item: Advance, then: DocumentUpdate, now: float) -> Document:
    """Returns the document that the store has after the advance `item`.

    - `before`: the stored document, None for a new one.
    - `then`: the update in `item`.
    - `now`: the wall time."""
    return Document(
        kind=item.kind,
        id=item.id,
        name=then.name,
        state=then.state,
        created=now if before is None else before.created,
        revision=item.expected + 1,
        record=then.record,
        due=then.due if then.due_in is None else now + then.due_in,
        **_expiry(before, then, now),
    )


def _expiry(before: Document | None, then: DocumentUpdate, now: float) -> dict[str, float | None]:
    """Returns the values of `finished` and `until` for the updated document. Both stay if a finished document
    is written again in the same state."""
    if then.keep is None:
        return {"finished": None, "until": None}
    # Writes that follow the pruning of its jobs must not keep the document longer.
    if before is not None and before.finished is not None and before.state == then.state:
        return {"finished": before.finished, "until": before.until}
    return {"finished": now, "until": now + then.keep}


def remembered_id(kind: DocumentKind, document: str) -> str:
    """Returns the text under which a store remembers a deleted document, so that the same flow does not run
    again."""
    return f"\x1f{kind}\x1f{document}"
