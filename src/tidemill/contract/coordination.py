"""Coordination of workers: leadership of duties, and wake-ups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from tidemill.contract.jobs import ClockReading
from tidemill.core.documents import DocumentKind


class Leadership(msgspec.Struct, frozen=True):
    """The result of `LeadershipStore.lead`. A duty is periodic work, such as maintenance, that one worker
    does at a time.

    - `leads`: the duties that the worker leads now.
    - `free_in`: seconds until the first lease of another worker on these duties expires; None if there is
      none.
    - `arrivals`: True if arrivals wait to be admitted.
    - `dues`: seconds until the next flow, and the next schedule, has to be advanced; None if none will be
      due."""

    leads: tuple[str, ...]
    free_in: float | None
    clock: ClockReading
    arrivals: bool
    dues: Mapping[DocumentKind, float | None]


class LeadershipStore(Protocol):
    """Leases on duties. At most one worker leads a duty at a time."""

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Leadership:
        """Renews the worker's leases on `duties`, takes the free ones, and reports which work waits.

        `worker` is the worker's id, `lease` the duration of the leases in seconds.

        C1  At most one worker leads a duty until its lease expires. Calling again renews the lease.
        C3  The report agrees with `JobStore.arrivals` and `DocumentStore.worklist`. A document on the
            worklist is due in 0 seconds."""
        ...

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        """Gives up the leases of `worker` on `duties`.

        C2  Another worker can lead these duties at once. A duty that `worker` does not lead stays
            unchanged."""
        ...


def queue_topic(queue: str) -> str:
    return f"queue:{queue}"


def worker_topic(worker: str) -> str:
    return f"worker:{worker}"


def job_topic(job: str) -> str:
    return f"job:{job}"


def worklist_topic(kind: DocumentKind) -> str:
    return f"worklist:{kind}"


def document_topic(kind: DocumentKind, document: str) -> str:
    return f"{kind}:{document}"


ARRIVALS_TOPIC = "arrivals"
"""Notified when a row was written straight into the store, by the stores that can notice it."""


class WakeupListener(Protocol):
    """A listener that waits for wake-ups of its topics. Call `arm`, look for work once more, then call
    `wait`.

    W1  `wait` returns True as soon as a wake-up has come since `arm`, and False after `timeout` seconds.
    W2  While a listener is not armed, sending a wake-up to its topics costs the sender nothing."""

    def arm(self) -> None: ...
    async def wait(self, timeout: float) -> bool: ...  # noqa: ASYNC109 - a store-level wait, not a scope
    def disarm(self) -> None: ...
    def close(self) -> None: ...


class WakeupStore(Protocol):
    """The methods that send and receive wake-ups. A topic names what a wake-up is about, such as one queue.

    W3  Every method that makes jobs of a queue startable sends a wake-up to the queue's topic. Waking one
        armed listener is enough: a worker that leaves jobs behind sends another wake-up.
    W4  Every method that ends a job sends a wake-up to the job's topic. Cancelling a running job sends one to
        the topic of its worker.
    W5  Every method that puts a document on the worklist, or changes its due time, sends a wake-up to
        `worklist_topic` of its kind. An advance that ends a document sends one to the document's topic."""

    def listen(self, topics: Iterable[str]) -> WakeupListener: ...

    def wake(self, topics: Iterable[str]) -> None:
        """Sends a wake-up to each topic. A queue's topic wakes one armed listener. Any other topic wakes all
        its armed listeners."""
        ...
