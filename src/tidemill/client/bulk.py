"""Many requests as few inserts.

Requests are sent in chunks of up to CHUNK_JOBS jobs or CHUNK_BYTES of payload, counted over all
queues; a job with a unique key or a lane of its own counts for LANED plain ones. In a chunk the jobs of
one queue are one group, accepted or refused as a whole. Whoever reads the requests from a generator
never holds more than one chunk of payloads twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from tidemill.client.request import JobRequest
from tidemill.core.job import Group, NewJob
from tidemill.core.queues import Inserted
from tidemill.errors import InvalidJob

R = TypeVar("R")

CHUNK_JOBS, LANED = 1000, 4  # a server has others to serve: one step of so many takes it five milliseconds
CHUNK_BYTES = 2 * 1024 * 1024  # and so many as well


class Chunk(Generic[R]):
    """Requests that are sent in one call, one group per queue."""

    def __init__(self, requests: Sequence[JobRequest[R]]) -> None:
        self.requests = requests
        jobs: dict[str, list[NewJob]] = {}
        for request in requests:
            jobs.setdefault(request.queue, []).append(request.job)
        self.groups = tuple(Group(queue, tuple(its)) for queue, its in jobs.items())

    def in_order(self, answers: Sequence[Sequence[Inserted]]) -> list[Inserted]:
        """The answers in the order of the requests."""
        by_queue = {group.queue: iter(its) for group, its in zip(self.groups, answers, strict=True)}
        return [next(by_queue[request.queue]) for request in self.requests]


def chunks(requests: Iterable[JobRequest[R]]) -> Iterator[Chunk[R]]:
    if not isinstance(requests, Iterable):
        raise InvalidJob(f"enqueue_many: takes a list of jobs, such as [send.job(…)], is {_kind(requests)}")
    chunk: list[JobRequest[R]] = []
    jobs = size = 0
    for request in requests:
        if not isinstance(request, JobRequest):
            raise InvalidJob(
                f"enqueue_many: takes jobs that a task made, such as [send.job(…)], not {_kind(request)}; "
                "sending those before it again doubles none"
            )
        chunk.append(request)
        jobs += _weight(request.job)
        size += len(request.job.payload)
        if jobs >= CHUNK_JOBS or size >= CHUNK_BYTES:
            yield Chunk(chunk)
            chunk, jobs, size = [], 0, 0
    if chunk:
        yield Chunk(chunk)


def _weight(job: NewJob) -> int:
    is_plain = job.key is None and job.unique is None and not job.needs and job.batching is None
    return 1 if is_plain else LANED


def _kind(given: object) -> str:
    """Its type: the value may be large, or a secret."""
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
