"""Many requests as few inserts.

Requests are sent in chunks of up to CHUNK_JOBS jobs or CHUNK_BYTES of payload, counted over all
queues. In a chunk the jobs of one queue are one group, accepted or refused as a whole. Whoever
reads the requests from a generator never holds more than one chunk of payloads twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from tidemill.client.request import JobRequest
from tidemill.core.job import Group, NewJob
from tidemill.core.queues import Inserted
from tidemill.errors import InvalidJob

R = TypeVar("R")

CHUNK_JOBS = 1000  # a server has others to serve: one step of so many takes it ten milliseconds
CHUNK_BYTES = 8 * 1024 * 1024


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
    size = 0
    for request in requests:
        if not isinstance(request, JobRequest):
            raise InvalidJob(
                f"enqueue_many: takes jobs that a task made, such as [send.job(…)], not {_kind(request)}; "
                "sending those before it again doubles none"
            )
        chunk.append(request)
        size += len(request.job.payload)
        if len(chunk) >= CHUNK_JOBS or size >= CHUNK_BYTES:
            yield Chunk(chunk)
            chunk, size = [], 0
    if chunk:
        yield Chunk(chunk)


def _kind(given: object) -> str:
    """Its type: the value may be large, or a secret."""
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
