"""Encodes a job as one string. Its layout lets scripts read some fields without parsing the rest.

  state, flags, seq, priority, created, due, attempts, crashes, generation, queue
  [expires] [key held until] [claim] [report] [finished] [result] [failure] task [optional fields] payload

A part in brackets is present if its flag is set. Numbers are big-endian. Each text follows its length.
The report, the failure and the optional fields are JSON, so that you can read every text in redis-cli.
The job's id is not in the string: it is the field of the hash `jobs`. `lua/parts/job_record.lua` knows
the same layout."""

from __future__ import annotations

import math
from struct import Struct
from typing import Final

import msgspec

from tidemill.core.batching import BatchPolicy
from tidemill.core.claims import ClaimedJob
from tidemill.core.jobs import Error, FlowPosition, Job
from tidemill.core.needs import Need
from tidemill.core.states import State

EXPIRES: Final = 1
CLAIMED: Final = 2
REPORT: Final = 4
ENDED: Final = 8
RESULT: Final = 16
FAILURE: Final = 32
OPTIONAL: Final = 64
ENGINE_ONLY: Final = 128
"""The fast path cannot end this job: it has a unique key, a successor, a flow or pools."""
HOLDS: Final = 256
ALONE: Final = 512
KEYED: Final = 1024
"""The job is in a lane with a key or pools, not in the lane of plain jobs."""

HEAD = Struct(">cHHIhddIIIH")
CLAIM = Struct(">HIQHIddH")
SHORT, LONG, TIME = Struct(">H"), Struct(">I"), Struct(">d")

STATE_LETTERS: Final[dict[State, bytes]] = {
    State.SCHEDULED: b"s",
    State.READY: b"r",
    State.WAITING: b"w",
    State.RUNNING: b"x",
    State.DONE: b"d",
    State.FAILED: b"f",
    State.CANCELLED: b"c",
}
LETTER_STATES: Final = {letter: state for state, letter in STATE_LETTERS.items()}


ClaimPart = tuple[int, int, int, float, float | None, str | None]
"""fence, claim, number, lease, started, worker"""
MiddlePart = tuple[
    float | None, float | None, ClaimPart, "RunReport", float | None, bytes | None, "FailureText", int
]
"""The parts between queue and task, and where they end. A tuple, because one is made per decoded job.
"""


class RunReport(msgspec.Struct, frozen=True, omit_defaults=True):
    progress: float | None = None
    note: str | None = None
    call: str = ""


class FailureText(msgspec.Struct, frozen=True, omit_defaults=True):
    error: Error | None = None
    reason: str | None = None


class OptionalFields(msgspec.Struct, frozen=True, omit_defaults=True):
    lane: str = ""
    timeout: float | None = None
    trace: str | None = None
    tags: tuple[str, ...] = ()
    unique_key: str | None = None
    unique_until: float | None = None
    after: str | None = None
    part: str = ""
    unknown_for: float | None = None
    needs: tuple[Need, ...] = ()
    batching: BatchPolicy | None = None
    deferred_needs: tuple[Need, ...] = ()
    flow: FlowPosition | None = None

    @property
    def is_special(self) -> bool:
        return self != OptionalFields(timeout=self.timeout, trace=self.trace, tags=self.tags)


NO_REPORT, NO_FAILURE, NO_OPTIONAL_FIELDS = RunReport(), FailureText(), OptionalFields()
NO_CLAIM: ClaimPart = (0, 0, 0, 0.0, None, None)
encode = msgspec.json.Encoder().encode
_decode_report = msgspec.json.Decoder(RunReport).decode
_decode_failure = msgspec.json.Decoder(FailureText).decode
_decode_optional_fields = msgspec.json.Decoder(OptionalFields).decode


def encode_job(job: Job) -> bytes:
    report = RunReport(job.progress, job.note, job.call)
    failure = FailureText(job.error, job.reason)
    optional = _optional_fields(job)
    queue, task, worker = job.queue.encode(), job.task.encode(), (job.worker or "").encode()
    flags = (
        EXPIRES * (job.expires is not None)
        | CLAIMED * (job.fence > 0)
        | REPORT * (report != NO_REPORT)
        | ENDED * (job.finished is not None)
        | RESULT * (job.result is not None)
        | FAILURE * (failure != NO_FAILURE)
        | OPTIONAL * (optional != NO_OPTIONAL_FIELDS)
        | ENGINE_ONLY * optional.is_special
        | HOLDS * job.unique_holds
        | ALONE * job.alone
        | KEYED * (job.lane != "")
    )
    head = HEAD.pack(
        STATE_LETTERS[job.state],
        flags,
        *_six_bytes(job.seq),
        job.priority,
        job.created,
        job.due,
        job.attempts,
        job.crashes,
        job.generation,
        len(queue),
    )
    pieces = [head, queue]
    if flags & EXPIRES:
        pieces.append(TIME.pack(job.expires))
    if flags & HOLDS:
        pieces.append(TIME.pack(_time(job.unique_until)))
    if flags & CLAIMED:
        claim = (
            *_six_bytes(job.fence),
            job.claim,
            *_six_bytes(job.number),
            job.lease,
            _time(job.started),
            len(worker),
        )
        pieces += [CLAIM.pack(*claim), worker]
    if flags & REPORT:
        pieces += _long(encode(report))
    if flags & ENDED:
        pieces.append(TIME.pack(job.finished))
    if job.result is not None:
        pieces += _long(job.result)
    if flags & FAILURE:
        pieces += _long(encode(failure))
    pieces += [SHORT.pack(len(task)), task]
    if flags & OPTIONAL:
        pieces += _long(encode(optional))
    pieces.append(job.payload)
    return b"".join(pieces)


def decode_job(id_: str, record: bytes, lease: float | None = None) -> Job:
    """Returns the job of a stored record. `lease`: the current end of a running job's lease (boot time); None
    means the value in the record."""
    letter, flags, high, low, priority, created, due, attempts, crashes, generation, length = (
        HEAD.unpack_from(record)
    )
    queue = record[HEAD.size : HEAD.size + length].decode()
    expires, held_until, claim_part, report, finished, result, failure, at = _decode_middle(
        record, HEAD.size + length, flags
    )
    fence, claim, number, kept_lease, started, worker = claim_part
    task, optional, payload = _decode_tail(record, at, flags)
    return Job(
        seq=high << 32 | low,
        id=id_,
        queue=queue,
        task=task,
        payload=payload,
        state=LETTER_STATES[letter],
        priority=priority,
        lane=optional.lane,
        created=created,
        due=due,
        expires=expires,
        timeout=optional.timeout,
        trace=optional.trace,
        tags=optional.tags,
        attempts=attempts,
        crashes=crashes,
        generation=generation,
        unique_key=optional.unique_key,
        unique_until=optional.unique_until if held_until is None else held_until,
        unique_holds=bool(flags & HOLDS),
        after=optional.after,
        fence=fence,
        claim=claim,
        worker=worker,
        number=number,
        lease=kept_lease if lease is None else lease,
        alone=bool(flags & ALONE),
        started=started,
        finished=finished,
        result=result,
        error=failure.error,
        reason=failure.reason,
        progress=report.progress,
        note=report.note,
        part=optional.part,
        unknown_for=optional.unknown_for or 0.0,
        needs=optional.needs,
        batching=optional.batching,
        call=report.call,
        deferred_needs=optional.deferred_needs,
        flow=optional.flow,
    )


def decode_claimed_job(id_: str, record: bytes, fence: int, claim: int) -> ClaimedJob:
    """Returns a job that a script has just claimed, from its stored record. The engine has the same rule in
    `core.transitions.claimed_job`."""
    _, flags, _, _, priority, created, due, attempts, crashes, generation, at = HEAD.unpack_from(record)
    queue = record[HEAD.size : HEAD.size + at].decode()
    at += HEAD.size + 8 * (flags & EXPIRES) + 8 * (flags & HOLDS > 0)
    if flags & CLAIMED:
        at += CLAIM.size
        at += SHORT.unpack_from(record, at - 2)[0]
    if flags & REPORT:
        at += 4 + LONG.unpack_from(record, at)[0]
    if flags & FAILURE:
        at += 4 + LONG.unpack_from(record, at)[0]
    task, optional, payload = _decode_tail(record, at, flags)
    return ClaimedJob(
        id_,
        queue,
        task,
        payload,
        fence,
        claim,
        attempts + 1,
        priority,
        "",
        crashes,
        generation,
        optional.timeout,
        optional.trace,
        created,
        due,
        "",
        flow=optional.flow,
    )


def encode_tail(task: str, optional: OptionalFields, payload: bytes) -> bytes:
    """Returns the last part of a record: task, optional fields and payload. Fast-path scripts do not parse
    this part."""
    name = task.encode()
    if optional == NO_OPTIONAL_FIELDS:
        return SHORT.pack(len(name)) + name + payload
    text = encode(optional)
    return b"".join((SHORT.pack(len(name)), name, LONG.pack(len(text)), text, payload))


def lane_member(job: Job) -> bytes:
    """Returns the member of a ready job in the sorted set of its lane: its due time, sequence number and id,
    as bytes."""
    return TIME.pack(job.due) + index_member(job)


def index_member(job: Job) -> bytes:
    return job.seq.to_bytes(6) + job.id.encode()


def split_member(of: bytes) -> tuple[int, str]:
    return int.from_bytes(of[:6]), of[6:].decode()


def _optional_fields(job: Job) -> OptionalFields:
    return OptionalFields(
        job.lane,
        job.timeout,
        job.trace,
        job.tags,
        job.unique_key,
        None if job.unique_holds else job.unique_until,
        job.after,
        job.part,
        job.unknown_for or None,
        job.needs,
        job.batching,
        job.deferred_needs,
        job.flow,
    )


def _decode_middle(record: bytes, at: int, flags: int) -> MiddlePart:
    expires = held_until = finished = result = None
    claim, report, failure = NO_CLAIM, NO_REPORT, NO_FAILURE
    if flags & EXPIRES:
        (expires,), at = TIME.unpack_from(record, at), at + 8
    if flags & HOLDS:
        (held_until,), at = TIME.unpack_from(record, at), at + 8
    if flags & CLAIMED:
        claim, at = _decode_claim(record, at)
    if flags & REPORT:
        text, at = _long_at(record, at)
        report = _decode_report(text)
    if flags & ENDED:
        (finished,), at = TIME.unpack_from(record, at), at + 8
    if flags & RESULT:
        result, at = _long_at(record, at)
    if flags & FAILURE:
        text, at = _long_at(record, at)
        failure = _decode_failure(text)
    return expires, held_until, claim, report, finished, result, failure, at


def _decode_claim(record: bytes, at: int) -> tuple[ClaimPart, int]:
    fence, fence_low, claim, number, number_low, lease, begun, length = CLAIM.unpack_from(record, at)
    end = at + CLAIM.size + length
    started = None if math.isnan(begun) else begun
    worker = record[end - length : end].decode()
    return (fence << 32 | fence_low, claim, number << 32 | number_low, lease, started, worker), end


def _decode_tail(record: bytes, at: int, flags: int) -> tuple[str, OptionalFields, bytes]:
    end = at + 2 + SHORT.unpack_from(record, at)[0]
    task = record[at + 2 : end].decode()
    if not flags & OPTIONAL:
        return task, NO_OPTIONAL_FIELDS, record[end:]
    text, end = _long_at(record, end)
    return task, _decode_optional_fields(text), record[end:]


def _six_bytes(number: int) -> tuple[int, int]:
    return number >> 32, number & 0xFFFFFFFF


def _time(moment: float | None) -> float:
    return math.nan if moment is None else moment


def _long(text: bytes) -> tuple[bytes, bytes]:
    return LONG.pack(len(text)), text


def _long_at(record: bytes, at: int) -> tuple[bytes, int]:
    end = at + 4 + LONG.unpack_from(record, at)[0]
    return record[at + 4 : end], end
