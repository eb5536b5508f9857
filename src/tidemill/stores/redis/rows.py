"""Encodes and decodes all stored rows except jobs: queues, pools, lanes, documents, workers and arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from tidemill.contract.jobs import Arrival
from tidemill.contract.reader import WorkerInfo
from tidemill.core.accounts import Account
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.documents import Document, DocumentKind
from tidemill.core.ledger import HeldReservation, LaneBlock
from tidemill.core.overrides import Override
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import InsertVerdict, Pause, QueueChanges, QueueSettings
from tidemill.engine.ledger import AbandonedClaim, PoolRecord
from tidemill.engine.queries import KeyPrefix, LaneRow, QueueSettingsRow
from tidemill.engine.records import ExpiryTerm, KnownId
from tidemill.stores.redis.keys import token

encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


class QueueJson(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored row of a queue. `declared` has only the settings that differ from the defaults, so most rows
    are `{}`."""

    declared: QueueChanges | UnsetType = UNSET
    override: Override[QueueChanges] | None = None
    pause: Pause | None = None


class WorkerJson(msgspec.Struct, frozen=True, omit_defaults=True):
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
            holds=0,  # counted on reading
            seen=self.seen,
        )


class PoolJson(msgspec.Struct, frozen=True, omit_defaults=True):
    declared: PoolSettings
    override: Override[LimitChanges] | None = None


class DocumentJson(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    state: str
    created: float
    revision: int
    due: float | None = None
    finished: float | None = None
    until: float | None = None


class _BlockColumns(msgspec.Struct, frozen=True, array_like=True):
    block: LaneBlock | None
    missing_jobs: int
    batch_due: float | None


_queue = msgspec.json.Decoder(QueueJson).decode
_worker = msgspec.json.Decoder(WorkerJson).decode
_document = msgspec.json.Decoder(DocumentJson).decode
_pool = msgspec.json.Decoder(PoolJson).decode
_lane_block = msgspec.msgpack.Decoder(_BlockColumns).decode
decode_abandoned_units = msgspec.json.Decoder(AbandonedClaim).decode
decode_reservations = msgspec.json.Decoder(tuple[HeldReservation, ...]).decode
decode_account = msgspec.json.Decoder(Account).decode
decode_blocks = msgspec.msgpack.Decoder(dict[str, LaneBlock]).decode
_checkpoint = msgspec.msgpack.Decoder(Checkpoint).decode

_DEFAULTS = QueueSettings()
_TERM = Struct(">ddH")
_VERDICTS: Final = {InsertVerdict.ACCEPTED: b"a", InsertVerdict.EXISTING: b"e"}
_LETTERS: Final = {letter: verdict for verdict, letter in _VERDICTS.items()}


def encode_queue(row: QueueSettingsRow) -> bytes:
    changed = {
        name: value
        for name in _DEFAULTS.__struct_fields__
        if (value := getattr(row.declared, name)) != getattr(_DEFAULTS, name)
    }
    declared = QueueChanges(**changed) if changed else UNSET
    return encode(QueueJson(declared, row.override, row.pause))


def decode_queue(text: bytes) -> QueueSettingsRow:
    """Returns the settings, override and pause of a queue from its row. The field `groups` stays empty."""
    row = _queue(text)
    declared = _DEFAULTS if isinstance(row.declared, UnsetType) else row.declared.over(_DEFAULTS)
    return QueueSettingsRow(declared, row.override, row.pause)


def encode_worker(info: WorkerInfo) -> bytes:
    return encode(WorkerJson(info.seen, info.host, info.pid, info.queues, info.concurrency))


def decode_worker(worker: str, text: bytes) -> WorkerInfo:
    return _worker(text).info(worker)


def encode_pool(pool: PoolRecord) -> bytes:
    return encode(PoolJson(pool.declared, pool.override))


def decode_pool(text: bytes) -> PoolRecord:
    row = _pool(text)
    return PoolRecord(row.declared, row.override)


def encode_document(document: Document) -> bytes:
    """Returns the stored form of a document: one line of JSON with its fields, then its `record`
    unchanged."""
    line = DocumentJson(
        document.name,
        document.state,
        document.created,
        document.revision,
        document.due,
        document.finished,
        document.until,
    )
    return encode(line) + b"\n" + document.record


def decode_document(kind: DocumentKind, id_: str, text: bytes) -> Document:
    line, _, record = text.partition(b"\n")
    header = _document(line)
    return Document(
        kind=kind,
        id=id_,
        name=header.name,
        state=header.state,
        created=header.created,
        revision=header.revision,
        record=record,
        due=header.due,
        finished=header.finished,
        until=header.until,
    )


def encode_lane(row: LaneRow) -> bytes:
    """Returns the stored form of a lane. It starts with two values for `commit.lua`: whether the lane is
    blocked, and the number of its last call."""
    is_blocked = b"\1" if row.block is not None else b"\0"
    return (
        is_blocked + row.served.to_bytes(6) + _pack(_BlockColumns(row.block, row.missing_jobs, row.batch_due))
    )


def decode_lane(text: bytes, jobs: KeyPrefix) -> LaneRow:
    why = _lane_block(text[7:])
    return LaneRow(int.from_bytes(text[1:7]), why.block, why.missing_jobs, why.batch_due, jobs)


def encode_blocks(marks: dict[str, LaneBlock]) -> bytes:
    return _pack(marks)


def encode_checkpoint(number: int, checkpoint: Checkpoint) -> bytes:
    return number.to_bytes(4) + _pack(checkpoint)


def decode_checkpoint(text: bytes) -> Checkpoint:
    return _checkpoint(text[4:])


def encode_known_id(request: str, known: KnownId) -> bytes:
    """Returns the stored form of `known`, the answer to an earlier enqueue request. `request`: the id in that
    request."""
    job = b"" if known.id == request else known.id.encode()
    boot_id = known.term.boot_id.encode()
    term = _TERM.pack(known.term.wall, known.term.boot, len(boot_id)) + boot_id
    return _VERDICTS[known.verdict] + token(known.fence, known.claim) + term + job


def decode_known_id(request: str, text: bytes) -> KnownId:
    wall, boot, length = _TERM.unpack_from(text, 15)
    end = 15 + _TERM.size + length
    return KnownId(
        _LETTERS[text[:1]],
        text[end:].decode() or request,
        int.from_bytes(text[1:7]),
        int.from_bytes(text[7:15]),
        ExpiryTerm(wall, boot, text[15 + _TERM.size : end].decode()),
    )


_SEQ_BITS = 20
"""Stream ids are a millisecond and a counter; one millisecond never holds more than a million entries."""


def decode_arrival(name: bytes, fields: Sequence[bytes]) -> Arrival:
    """Returns the arrival of a stream entry. `name`: the entry's id. A missing field becomes empty, and
    `admit` rejects the arrival later."""
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    seq = arrival_seq(name)
    return Arrival(
        seq=seq,
        id=values.get(b"id", b"").decode(errors="replace"),
        task=values.get(b"task", b"").decode(errors="replace"),
        payload=values.get(b"payload", b""),
        options=values.get(b"options", b"{}"),
        arrived=(seq >> _SEQ_BITS) / 1000,
    )


def arrival_entry_id(seq: int) -> str:
    return f"{seq >> _SEQ_BITS}-{seq & (1 << _SEQ_BITS) - 1}"


def arrival_seq(name: bytes) -> int:
    milliseconds, _, number = name.partition(b"-")
    return int(milliseconds) << _SEQ_BITS | int(number)
