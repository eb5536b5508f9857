"""A job as one string, so laid out that scripts reach what they need without reading the rest.

    state, flags, seq, priority, created, due, attempts, crashes, generation, queue
    [expires] [key held until] [claim] [news] [finished] [result] [fate] task [more] payload

What is in brackets is there when its flag is set. Numbers are big-endian; texts carry their length before
them; news, fate and more are JSON. So a person who looks with redis-cli can read everything that was text.
The id is the name under which it is kept. `lua/parts/records.lua` knows the same layout.
"""

from __future__ import annotations

import math
from struct import Struct
from typing import Final

import msgspec

from tidemill.core.batching import Batching
from tidemill.core.claims import Claimed
from tidemill.core.flow_jobs import InFlow
from tidemill.core.job import Error, Job
from tidemill.core.needs import Need
from tidemill.core.states import State

EXPIRES: Final = 1
CLAIMED: Final = 2
NEWS: Final = 4
ENDED: Final = 8
RESULT: Final = 16
FATE: Final = 32
MORE: Final = 64
SPECIAL: Final = 128
"""Its end has consequences the short scripts do not know: a unique key, a successor, a flow, pools."""
HOLDS: Final = 256
ALONE: Final = 512
LANED: Final = 1024
"""It stands in a lane of its own kind, not in the one that all plain jobs share."""

HEAD = Struct(">cHHIhddIIIH")
CLAIM = Struct(">HIQHIddH")
SHORT, LONG, TIME = Struct(">H"), Struct(">I"), Struct(">d")

LETTERS: Final[dict[State, bytes]] = {
    State.SCHEDULED: b"s",
    State.READY: b"r",
    State.WAITING: b"w",
    State.RUNNING: b"x",
    State.DONE: b"d",
    State.FAILED: b"f",
    State.CANCELLED: b"c",
}
STATES: Final = {letter: state for state, letter in LETTERS.items()}


ClaimPart = tuple[int, int, int, float, float | None, str | None]
"""fence, claim, number, lease, started, worker"""
MiddlePart = tuple[float | None, float | None, ClaimPart, "News", float | None, bytes | None, "Fate", int]
"""What stands between queue and task, and where it ends. Plain, for one is made per job that is read."""


class News(msgspec.Struct, frozen=True, omit_defaults=True):
    progress: float | None = None
    note: str | None = None
    call: str = ""


class Fate(msgspec.Struct, frozen=True, omit_defaults=True):
    error: Error | None = None
    reason: str | None = None


class More(msgspec.Struct, frozen=True, omit_defaults=True):
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
    batching: Batching | None = None
    extra: tuple[Need, ...] = ()
    flow: InFlow | None = None

    @property
    def is_special(self) -> bool:
        return self != More(timeout=self.timeout, trace=self.trace, tags=self.tags)


NO_NEWS, NO_FATE, NO_MORE = News(), Fate(), More()
NO_CLAIM: ClaimPart = (0, 0, 0, 0.0, None, None)
encode = msgspec.json.Encoder().encode
_news = msgspec.json.Decoder(News).decode
_fate = msgspec.json.Decoder(Fate).decode
_more = msgspec.json.Decoder(More).decode


def packed(job: Job) -> bytes:
    news = News(job.progress, job.note, job.call)
    fate = Fate(job.error, job.reason)
    more = _more_of(job)
    queue, task, worker = job.queue.encode(), job.task.encode(), (job.worker or "").encode()
    flags = (
        EXPIRES * (job.expires is not None)
        | CLAIMED * (job.fence > 0)
        | NEWS * (news != NO_NEWS)
        | ENDED * (job.finished is not None)
        | RESULT * (job.result is not None)
        | FATE * (fate != NO_FATE)
        | MORE * (more != NO_MORE)
        | SPECIAL * more.is_special
        | HOLDS * job.unique_holds
        | ALONE * job.alone
        | LANED * (job.lane != "")
    )
    head = HEAD.pack(
        LETTERS[job.state],
        flags,
        *_six(job.seq),
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
        claim = (*_six(job.fence), job.claim, *_six(job.number), job.lease, _time(job.started), len(worker))
        pieces += [CLAIM.pack(*claim), worker]
    if flags & NEWS:
        pieces += _long(encode(news))
    if flags & ENDED:
        pieces.append(TIME.pack(job.finished))
    if job.result is not None:
        pieces += _long(job.result)
    if flags & FATE:
        pieces += _long(encode(fate))
    pieces += [SHORT.pack(len(task)), task]
    if flags & MORE:
        pieces += _long(encode(more))
    pieces.append(job.payload)
    return b"".join(pieces)


def unpacked(id_: str, record: bytes, lease: float | None = None) -> Job:
    """`lease`: what it is by now, of a running job."""
    letter, flags, high, low, priority, created, due, attempts, crashes, generation, length = (
        HEAD.unpack_from(record)
    )
    queue = record[HEAD.size : HEAD.size + length].decode()
    expires, held_until, its_claim, news, finished, result, fate, at = _middle(
        record, HEAD.size + length, flags
    )
    fence, claim, number, kept_lease, started, worker = its_claim
    task, more, payload = _tail(record, at, flags)
    return Job(
        seq=high << 32 | low,
        id=id_,
        queue=queue,
        task=task,
        payload=payload,
        state=STATES[letter],
        priority=priority,
        lane=more.lane,
        created=created,
        due=due,
        expires=expires,
        timeout=more.timeout,
        trace=more.trace,
        tags=more.tags,
        attempts=attempts,
        crashes=crashes,
        generation=generation,
        unique_key=more.unique_key,
        unique_until=more.unique_until if held_until is None else held_until,
        unique_holds=bool(flags & HOLDS),
        after=more.after,
        fence=fence,
        claim=claim,
        worker=worker,
        number=number,
        lease=kept_lease if lease is None else lease,
        alone=bool(flags & ALONE),
        started=started,
        finished=finished,
        result=result,
        error=fate.error,
        reason=fate.reason,
        progress=news.progress,
        note=news.note,
        part=more.part,
        unknown_for=more.unknown_for or 0.0,
        needs=more.needs,
        batching=more.batching,
        call=news.call,
        extra=more.extra,
        flow=more.flow,
    )


def in_hand(id_: str, record: bytes, fence: int, claim: int) -> Claimed:
    """As `core.transitions.in_hand`, of a job that was ready in the lane of plain jobs."""
    _, flags, _, _, priority, created, due, attempts, crashes, generation, at = HEAD.unpack_from(record)
    queue = record[HEAD.size : HEAD.size + at].decode()
    at += HEAD.size + 8 * (flags & EXPIRES) + 8 * (flags & HOLDS > 0)
    if flags & CLAIMED:
        at += CLAIM.size
        at += SHORT.unpack_from(record, at - 2)[0]
    if flags & NEWS:
        at += 4 + LONG.unpack_from(record, at)[0]
    if flags & FATE:
        at += 4 + LONG.unpack_from(record, at)[0]
    task, more, payload = _tail(record, at, flags)
    return Claimed(
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
        more.timeout,
        more.trace,
        created,
        due,
        "",
        flow=more.flow,
    )


def tail(task: str, more: More, payload: bytes) -> bytes:
    """What the scripts never look at."""
    name = task.encode()
    if more == NO_MORE:
        return SHORT.pack(len(name)) + name + payload
    text = encode(more)
    return b"".join((SHORT.pack(len(name)), name, LONG.pack(len(text)), text, payload))


def in_lane(job: Job) -> bytes:
    """Where a ready job stands among those of its priority."""
    return TIME.pack(job.due) + member(job)


def member(job: Job) -> bytes:
    return job.seq.to_bytes(6) + job.id.encode()


def seq_and_id(of: bytes) -> tuple[int, str]:
    return int.from_bytes(of[:6]), of[6:].decode()


def _more_of(job: Job) -> More:
    return More(
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
        job.extra,
        job.flow,
    )


def _middle(record: bytes, at: int, flags: int) -> MiddlePart:
    expires = held_until = finished = result = None
    claim, news, fate = NO_CLAIM, NO_NEWS, NO_FATE
    if flags & EXPIRES:
        (expires,), at = TIME.unpack_from(record, at), at + 8
    if flags & HOLDS:
        (held_until,), at = TIME.unpack_from(record, at), at + 8
    if flags & CLAIMED:
        claim, at = _claim_at(record, at)
    if flags & NEWS:
        text, at = _long_at(record, at)
        news = _news(text)
    if flags & ENDED:
        (finished,), at = TIME.unpack_from(record, at), at + 8
    if flags & RESULT:
        result, at = _long_at(record, at)
    if flags & FATE:
        text, at = _long_at(record, at)
        fate = _fate(text)
    return expires, held_until, claim, news, finished, result, fate, at


def _claim_at(record: bytes, at: int) -> tuple[ClaimPart, int]:
    fence, fence_low, claim, number, number_low, lease, begun, length = CLAIM.unpack_from(record, at)
    end = at + CLAIM.size + length
    started = None if math.isnan(begun) else begun
    worker = record[end - length : end].decode()
    return (fence << 32 | fence_low, claim, number << 32 | number_low, lease, started, worker), end


def _tail(record: bytes, at: int, flags: int) -> tuple[str, More, bytes]:
    end = at + 2 + SHORT.unpack_from(record, at)[0]
    task = record[at + 2 : end].decode()
    if not flags & MORE:
        return task, NO_MORE, record[end:]
    text, end = _long_at(record, end)
    return task, _more(text), record[end:]


def _six(number: int) -> tuple[int, int]:
    return number >> 32, number & 0xFFFFFFFF


def _time(moment: float | None) -> float:
    return math.nan if moment is None else moment


def _long(text: bytes) -> tuple[bytes, bytes]:
    return LONG.pack(len(text)), text


def _long_at(record: bytes, at: int) -> tuple[bytes, int]:
    end = at + 4 + LONG.unpack_from(record, at)[0]
    return record[at + 4 : end], end
