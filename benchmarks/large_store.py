"""Fills a store like a week of production: all states, several queues, keys, pools, tags, flows, schedules,
and a week of per-minute history.

Old jobs have ended, new ones wait. One queue has had no new jobs for days, so its jobs are older than
all others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from tidemill.contract.copy import JobCopy, PoolCopy, QueueCopy, StoreCopy
from tidemill.contract.reader import AttemptRecord, QueueMinute
from tidemill.contract.store import Store
from tidemill.core.claims import ClaimRequest, QueueShare
from tidemill.core.documents import Document, DocumentKind
from tidemill.core.jobs import Error, FlowPosition, Job
from tidemill.core.limits import Limit
from tidemill.core.needs import Need, lane_name
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import DAY_SECONDS, QueueSettings
from tidemill.core.states import FINAL, State

JOBS_PER_INSERT = 1000
WEEK_SECONDS = 7 * DAY_SECONDS
RUNNING = 500
FLOWS, RECORDS = 2_000, 20_000
HOSTS = 500
TITLES = ("海上升明月", "天涯共此时", "Feed of the day", "路漫漫其修远兮")
QUEUES = ("feeds", "metadata", "embed", "mail", "dubbing")
OLD_QUEUE = "archive"
POOLS = {
    "model": PoolSettings(limits=(Limit.requests(600, per="minute"), Limit.tokens(1e6, per="minute"))),
    "site": PoolSettings(limits=(Limit.requests(1, per="second"),), keyed=True),
}
_ENDED = (*(State.DONE,) * 96, State.FAILED, State.FAILED, State.CANCELLED, State.CANCELLED)
_WAITS = (*(State.READY,) * 70, *(State.SCHEDULED,) * 27, State.WAITING, State.DONE, State.DONE)


async def fill_store(store: Store, jobs: int) -> None:
    now = (await store.read_clock()).wall
    for settings in _settings(now):
        await store.copy_in(settings)
    some: list[JobCopy] = []
    for number in range(jobs):
        some.append(_job(number, jobs, now))
        if len(some) == JOBS_PER_INSERT:
            await store.copy_in(StoreCopy(jobs=some))
            some = []
    await store.copy_in(StoreCopy(jobs=some))
    for documents in _documents(now):
        await store.copy_in(StoreCopy(documents=documents))
    shares = tuple(QueueShare(queue, RUNNING // 2) for queue in ("mail", "embed"))
    request = ClaimRequest(worker="w", number=1, shares=shares, limit=RUNNING, lease=3600.0)
    await store.claim(request)


def _settings(now: float) -> Iterator[StoreCopy]:
    yield StoreCopy(pools={name: PoolCopy(declared=pool) for name, pool in POOLS.items()})
    first = (now - WEEK_SECONDS) // 60 * 60
    minutes = [
        QueueMinute(first + 60 * n, 90 + n % 7, 1, n % 2, n % 5, 0) for n in range(int(WEEK_SECONDS) // 60)
    ]
    for name in (*QUEUES, OLD_QUEUE):
        for start in range(0, len(minutes), JOBS_PER_INSERT):
            some = tuple(minutes[start : start + JOBS_PER_INSERT])
            yield StoreCopy(queues={name: QueueCopy(declared=QueueSettings(), history=some)})


def _job(number: int, jobs: int, now: float) -> JobCopy:
    created = now - WEEK_SECONDS * (1 - number / jobs)
    mixed = number * 7919 % 10_007
    queue = OLD_QUEUE if number < jobs // 5 else QUEUES[mixed % len(QUEUES)]
    state = (_ENDED if number < jobs * 6 // 10 else _WAITS)[mixed // len(QUEUES) % 100]
    needs = _needs(queue, mixed)
    key = f"k{mixed % 100}" if queue == "embed" else None
    in_flow = (
        FlowPosition(f"flow-{number % FLOWS}", "step", number) if queue == "dubbing" and number % 2 else None
    )
    started, finished = (created + 1, created + 1 + mixed % 9) if state in FINAL else (None, None)
    failed = state is State.FAILED
    error = (
        Error("TimeoutError", f"no answer from h{mixed % HOSTS}.example within 30 s", "…") if failed else None
    )
    job = Job(
        seq=0,
        id=f"{mixed:05x}-{number}",
        queue=queue,
        task=f"{queue}:{'rare' if mixed == 77 else ('fetch', 'store', 'tell')[mixed % 3]}",
        payload=_payload(number, mixed),
        state=state,
        priority=5 + mixed % 2,
        lane=lane_name(key, needs),
        created=created,
        due=created if state is not State.SCHEDULED else now + 60 + mixed,
        tags=("nightly", "rare") if mixed == 7 else ("nightly",) if mixed % 2 else (),
        attempts=3 if failed else int(state in FINAL),
        started=started,
        finished=finished,
        error=error,
        reason="attempts exhausted" if failed else None,
        needs=needs,
        after=f"nobody-{number}" if state is State.WAITING else None,
        flow=in_flow,
    )
    return JobCopy(job=job, attempts=tuple(_attempts(job)))


def _needs(queue: str, mixed: int) -> tuple[Need, ...]:
    if queue == "metadata":
        return (Need("model", None, {"requests": 1.0, "tokens": 900.0}),)
    return (Need("site", f"h{mixed % HOSTS}.example", {"requests": 1.0}),) if queue == "feeds" else ()


def _payload(number: int, mixed: int) -> bytes:
    told = {
        "feed": {"host": f"h{mixed % HOSTS}.example", "title": TITLES[mixed % 4]},
        "items": [{"id": number}, {"id": number + 1}],
        "text": "lorem ipsum dolor sit amet " * 3,
    }
    return msgspec.json.encode(told)


def _attempts(job: Job) -> Iterator[AttemptRecord]:
    if job.error is not None and job.finished is not None:
        for attempt in (1, 2, 3):
            at = job.finished - 3 + attempt
            yield AttemptRecord(0, attempt, at - 1, at, "w", "retry" if attempt < 3 else "fail", job.error)


def _documents(now: float) -> Iterator[list[Document]]:
    record = msgspec.json.encode({"by": "ada", "at": datetime.fromtimestamp(now, UTC).isoformat()})
    kinds = [("token", n) if n % 100 == 0 else ("audit", n) for n in range(RECORDS)]
    documents = [
        Document(
            kind=DocumentKind.RECORD, id=f"{name}-{n}", name=name, state=("retry", "cancel", "pause")[n % 3],
            created=now - RECORDS + n, revision=1, record=record,
        )
        for name, n in kinds
    ]  # fmt: skip
    for start in range(0, len(documents), JOBS_PER_INSERT):
        yield documents[start : start + JOBS_PER_INSERT]
