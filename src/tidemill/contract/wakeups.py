"""Wake-ups are hints: everything is correct when every one of them is lost, only later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidemill.core.courses import Kind


def queue_topic(queue: str) -> str:
    return f"queue:{queue}"


def worker_topic(worker: str) -> str:
    return f"worker:{worker}"


def job_topic(job: str) -> str:
    return f"job:{job}"


def agenda_topic(kind: Kind) -> str:
    return f"agenda:{kind}"


def course_topic(kind: Kind, course: str) -> str:
    return f"{kind}:{course}"


ARRIVALS = "arrivals"
"""Rung by stores into which requests are written straight, where they can."""


class Listener(Protocol):
    """Arm, look once more, then wait: a ring after `arm` is never missed.

    W1 `wait` returns True at once when it was rung since `arm`, False after `timeout`.
    W2 A disarmed listener costs its notifiers nothing.
    """

    def arm(self) -> None: ...
    async def wait(self, timeout: float) -> bool: ...  # noqa: ASYNC109 - a store-level wait, not a scope
    def disarm(self) -> None: ...
    def close(self) -> None: ...


class Wakeups(Protocol):
    """W3 Whatever makes jobs of a queue startable rings the queue's topic: insert, promote, resume,
          a freed limit, a retry, a reclaim; one armed listener per ring is enough, for it rings on
          when it leaves work behind.
    W4 Whatever ends a job rings the job's topic; a cancel of a running one rings its worker's.
    W5 Whatever puts a course on the agenda, or changes when it is due, rings the agenda's topic of its kind;
          an advance that ends a course rings the course's.
    """

    def listen(self, topics: Iterable[str]) -> Listener: ...

    def ring(self, topics: Iterable[str]) -> None:
        """Wake one armed listener of a queue's topic, every one of any other."""
        ...
