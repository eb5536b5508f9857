"""I11: per queue and unique key at most one live job, plus one waiting successor; keys end."""

from __future__ import annotations

from collections import Counter

from tests.simulation.invariants.deadlines import sent
from tests.simulation.store_monitor import VerbEvent
from tests.simulation.trace import Violation
from tidemill.core.jobs import Job, NewJob
from tidemill.core.queues import InsertVerdict
from tidemill.core.states import LIVE, State


class UniqueKeys:
    """Takes each job's key from the request, not from the store's record."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[str, str]] = {}
        self._until: dict[str, float] = {}
        self._holds: set[str] = set()
        self._over: set[str] = set()
        self._told: set[str] = set()

    def see(self, event: VerbEvent) -> None:
        self._over.update(id_ for id_, until in self._until.items() if event.wall >= until)
        if event.verb == "insert":
            self._see_insert(event)
        if event.changes:
            self._check_live(event)

    def _see_insert(self, event: VerbEvent) -> None:
        for (request, answer), queue in zip(sent(event), _queues(event), strict=True):
            if request.unique is None:
                continue
            if answer.verdict is InsertVerdict.ACCEPTED and answer.id == request.id:
                self._learn(event, queue, request)
            elif answer.verdict is InsertVerdict.EXISTING and answer.id != request.id:
                self._check_existing(event, request, answer.id)

    def _learn(self, event: VerbEvent, queue: str, request: NewJob) -> None:
        before, after = event.changes.get(request.id, (None, None))
        if request.unique is None or before is not None or after is None:
            return
        self._keys[request.id] = (queue, request.unique.key)
        lasts = request.unique.lasts
        if lasts is not None:
            self._until[request.id] = event.wall + lasts
        if request.unique.period is not None:
            self._holds.add(request.id)

    def _check_existing(self, event: VerbEvent, request: NewJob, holder: str) -> None:
        """A key that has ended may not reject a new job. A repeated request may get the answer of its first
        time."""
        before, now = event.changes.get(holder, (event.jobs.get(holder),) * 2)
        born_here = before is None and now is not None  # and replaced by a later request of the same insert
        live = born_here or any(job is not None and job.state in LIVE for job in (before, now))
        held = holder in self._holds and event.wall < self._until[holder]
        if request.id not in self._told and not live and not held:
            raise Violation("I11", f"{request.id} was told that {holder} holds its key, which has ended")
        self._told.add(request.id)

    def _check_live(self, event: VerbEvent) -> None:
        live: Counter[tuple[str, str]] = Counter()
        waiting: Counter[tuple[str, str]] = Counter()
        for job in event.jobs.values():
            if (key := self._key_of(job)) is not None:
                (waiting if job.state is State.WAITING else live)[key] += 1
        for word, counts in (("live", live), ("waiting", waiting)):
            for key, count in counts.items():
                if count > 1:
                    raise Violation(
                        "I11", f"{count} {word} jobs share the key {key[1]!r} of queue {key[0]!r}"
                    )

    def _key_of(self, job: Job) -> tuple[str, str] | None:
        """Returns the key of a job. An operator's retry releases it, and a key with a duration may end
        before its job."""
        if job.state not in LIVE or job.generation > 0 or job.id in self._over:
            return None
        return self._keys.get(job.id)


def _queues(event: VerbEvent) -> list[str]:
    return [group.queue for group in event.call.args[0] for _ in group.jobs]
