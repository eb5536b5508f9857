"""Rows other than jobs, as they are kept in Redis."""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from tidemill.contract.reader import WorkerInfo
from tidemill.core.accounts import Account
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.courses import Course, Kind
from tidemill.core.ledger import Reserved, Shut
from tidemill.core.pools import PoolOverride, PoolSettings
from tidemill.core.queues import Override, Pause, QueueChanges, QueueSettings, Verdict
from tidemill.engine.ledger import Left, Pool
from tidemill.engine.records import Remembered, Term
from tidemill.engine.wants import Beginning, LaneRow, QueueRow
from tidemill.stores.redis.keys import token

encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


class QueueText(msgspec.Struct, frozen=True, omit_defaults=True):
    """`declared` names only what differs from the default: scripts see at a glance that nothing does."""

    declared: QueueChanges | UnsetType = UNSET
    override: Override | None = None
    pause: Pause | None = None


class WorkerText(msgspec.Struct, frozen=True, omit_defaults=True):
    seen: float = 0.0
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    concurrency: int = 0

    def info(self, worker: str) -> WorkerInfo:
        return WorkerInfo(
            id=worker,
            host=self.host,
            pid=self.pid,
            queues=self.queues,
            concurrency=self.concurrency,
            holds=0,  # counted when it is read
            seen=self.seen,
        )


class PoolText(msgspec.Struct, frozen=True, omit_defaults=True):
    declared: PoolSettings
    override: PoolOverride | None = None


class CourseText(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    state: str
    created: float
    revision: int
    due: float | None = None
    finished: float | None = None
    until: float | None = None


class _Why(msgspec.Struct, frozen=True, array_like=True):
    shut: Shut | None
    lacks: int
    ripe: float | None


_queue = msgspec.json.Decoder(QueueText).decode
_worker = msgspec.json.Decoder(WorkerText).decode
_course = msgspec.json.Decoder(CourseText).decode
_pool = msgspec.json.Decoder(PoolText).decode
_why = msgspec.msgpack.Decoder(_Why).decode
left_of = msgspec.json.Decoder(Left).decode
reserved_of = msgspec.json.Decoder(tuple[Reserved, ...]).decode
account_of = msgspec.json.Decoder(Account).decode
marks_of = msgspec.msgpack.Decoder(dict[str, Shut]).decode
_checkpoint = msgspec.msgpack.Decoder(Checkpoint).decode

_DEFAULTS = QueueSettings()
_TERM = Struct(">ddH")
_VERDICTS: Final = {Verdict.ACCEPTED: b"a", Verdict.EXISTING: b"e"}
_LETTERS: Final = {letter: verdict for verdict, letter in _VERDICTS.items()}


def queue_text(row: QueueRow) -> bytes:
    given = {
        name: value
        for name in _DEFAULTS.__struct_fields__
        if (value := getattr(row.declared, name)) != getattr(_DEFAULTS, name)
    }
    declared = QueueChanges(**given) if given else UNSET
    return encode(QueueText(declared, row.override, row.pause))


def queue_of(text: bytes) -> QueueRow:
    """Without its groups."""
    row = _queue(text)
    declared = _DEFAULTS if isinstance(row.declared, UnsetType) else row.declared.over(_DEFAULTS)
    return QueueRow(declared, row.override, row.pause)


def worker_text(info: WorkerInfo) -> bytes:
    return encode(WorkerText(info.seen, info.host, info.pid, info.queues, info.concurrency))


def worker_of(worker: str, text: bytes) -> WorkerInfo:
    return _worker(text).info(worker)


def pool_text(pool: Pool) -> bytes:
    return encode(PoolText(pool.declared, pool.override))


def pool_of(text: bytes) -> Pool:
    row = _pool(text)
    return Pool(row.declared, row.override)


def course_text(course: Course) -> bytes:
    """A line of JSON, and the record as it was sent."""
    line = CourseText(
        course.name,
        course.state,
        course.created,
        course.revision,
        course.due,
        course.finished,
        course.until,
    )
    return encode(line) + b"\n" + course.record


def course_of(kind: Kind, id_: str, text: bytes) -> Course:
    line, _, record = text.partition(b"\n")
    kept = _course(line)
    return Course(
        kind=kind,
        id=id_,
        name=kept.name,
        state=kept.state,
        created=kept.created,
        revision=kept.revision,
        record=record,
        due=kept.due,
        finished=kept.finished,
        until=kept.until,
    )


def lane_text(row: LaneRow) -> bytes:
    """Whether it is shut and when it was served comes first: commit.lua keeps the order of lanes by it."""
    is_shut = b"\1" if row.shut is not None else b"\0"
    return is_shut + row.served.to_bytes(6) + _pack(_Why(row.shut, row.lacks, row.ripe))


def lane_of(text: bytes, jobs: Beginning) -> LaneRow:
    why = _why(text[7:])
    return LaneRow(int.from_bytes(text[1:7]), why.shut, why.lacks, why.ripe, jobs)


def marks_text(marks: dict[str, Shut]) -> bytes:
    return _pack(marks)


def step_text(number: int, kept: Checkpoint) -> bytes:
    return number.to_bytes(4) + _pack(kept)


def step_of(text: bytes) -> Checkpoint:
    return _checkpoint(text[4:])


def remembered_text(request: str, known: Remembered) -> bytes:
    """A job that is gone stands for itself: then its id is not written twice."""
    job = b"" if known.id == request else known.id.encode()
    boot_id = known.term.boot_id.encode()
    term = _TERM.pack(known.term.wall, known.term.boot, len(boot_id)) + boot_id
    return _VERDICTS[known.verdict] + token(known.fence, known.claim) + term + job


def remembered_of(request: str, text: bytes) -> Remembered:
    wall, boot, length = _TERM.unpack_from(text, 15)
    end = 15 + _TERM.size + length
    return Remembered(
        _LETTERS[text[:1]],
        text[end:].decode() or request,
        int.from_bytes(text[1:7]),
        int.from_bytes(text[7:15]),
        Term(wall, boot, text[15 + _TERM.size : end].decode()),
    )
