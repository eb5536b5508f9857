"""What makes jobs by itself, a flow as its steps end, a schedule as time goes by; and what is merely kept: a
record, such as a token or what somebody did.

A store keeps a course as a record it does not look into. Whoever advances one reads what has happened,
decides what follows, and hands the course as it becomes and the jobs that come of it to the store. It takes
both or, when somebody else was quicker, neither.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidemill.core.job import Error, NewJob
from tidemill.core.names import problem_with_name
from tidemill.core.states import State

ENDS_AT_ONCE, JOBS_AT_ONCE = 500, 250
"""How many ends an agenda has of one course, and how many jobs an advance makes: no step is a long one ..."""
BYTES_AT_ONCE = 1024 * 1024
"""... nor one of a few large ones."""


class Kind(StrEnum):
    FLOW = "flow"
    SCHEDULE = "schedule"
    RECORD = "record"


ADVANCING = (Kind.FLOW, Kind.SCHEDULE)
"""What goes on by itself, so that workers ask for it. A record stays as it is until somebody writes it."""


REMEMBERED = frozenset({Kind.FLOW})
"""What is known by id when it is gone: a flow that is sent again must not run again. The name of a schedule
or of a record is free at once."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """`name` and `state` are what it is listed by, `record` is JSON. `revision` is 1 when it begins and one
    more with every advance. At `due` it wants to be advanced though nothing has ended. Once `finished` it is
    kept until `until`. Times are wall times."""

    kind: Kind
    id: str
    name: str
    state: str
    created: float
    revision: int
    record: bytes
    due: float | None = None
    finished: float | None = None
    until: float | None = None


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """A course as it becomes. `due` is a time, `due_in` is from now; `keep` is how long it stays when it
    ends with this, None while it goes on."""

    name: str
    state: str
    record: bytes
    due: float | None = None
    due_in: float | None = None
    keep: float | None = None


class Made(msgspec.Struct, frozen=True):
    """A job that comes of a course. With an `error` it could not be made, and is kept as a failed one."""

    queue: str
    job: NewJob
    error: Error | None = None


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """`expected` is the revision it was decided on, 0 for a course that begins. `next` is None for one that
    is to be forgotten, which a flow never is; its jobs stay. `taken` are numbers of ends. `again` puts it on
    the agenda at once."""

    kind: Kind
    id: str
    expected: int
    next: Next | None
    jobs: tuple[Made, ...] = ()
    taken: tuple[int, ...] = ()
    again: bool = False


class Advanced(msgspec.Struct, frozen=True):
    """`course` is as it is now; None when there is none, or one is remembered that is gone. `jobs` are those
    that stand for the ones it made, in order: each its own, or who holds its unique key."""

    done: bool
    course: Course | None
    jobs: tuple[str, ...] = ()


class End(msgspec.Struct, frozen=True):
    """A job of the course has ended, or was brought back, since somebody looked. `state` is the one it is in
    now, None when it is gone. Without a `job`, '', it was put on the agenda for another reason."""

    number: int
    job: str
    state: State | None


class Stirred(msgspec.Struct, frozen=True):
    course: Course
    ends: tuple[End, ...] = ()


class Agenda(msgspec.Struct, frozen=True):
    """`next_due` is in how many seconds the next course comes due, None when none will."""

    stirred: tuple[Stirred, ...]
    next_due: float | None = None


def problem_with(advance: Advance) -> str | None:
    """Why an advance cannot be taken, naming the field."""
    names = [("id", advance.id)]
    if advance.next is not None:
        names += [("name", advance.next.name), ("state", advance.next.state)]
    for field, name in names:
        if problem := problem_with_name(field, name):
            return problem
    if advance.next is None and advance.kind is Kind.FLOW:
        return "next: must not be None, or its jobs would stay for ever; let the flow end with keep=0"
    return _problem_with_record(advance) if advance.kind is Kind.RECORD else None


def _problem_with_record(advance: Advance) -> str | None:
    if advance.again:
        return "again: must be False, nobody would come to advance a record"
    if advance.next is not None and (advance.next.due, advance.next.due_in) != (None, None):
        return "due: must be None, nobody would come to advance a record"
    return None


def became(before: Course | None, item: Advance, then: Next, now: float) -> Course:
    """The course an advance makes of the one before."""
    return Course(
        kind=item.kind,
        id=item.id,
        name=then.name,
        state=then.state,
        created=now if before is None else before.created,
        revision=item.expected + 1,
        record=then.record,
        due=then.due if then.due_in is None else now + then.due_in,
        **_ending(before, then, now),
    )


def _ending(before: Course | None, then: Next, now: float) -> dict[str, float | None]:
    """Whatever is told of one that has ended so, it goes when it was to go: that its jobs go first must not
    keep it."""
    if then.keep is None:
        return {"finished": None, "until": None}
    if before is not None and before.finished is not None and before.state == then.state:
        return {"finished": before.finished, "until": before.until}
    return {"finished": now, "until": now + then.keep}


def memory_id(kind: Kind, course: str) -> str:
    """Under which a course that is gone is remembered, beside the ids of jobs."""
    return f"\x1f{kind}\x1f{course}"
