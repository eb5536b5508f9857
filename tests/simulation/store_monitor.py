"""Executes verbs on the store, and passes the changes of each to every invariant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.simulation.trace import Trace, Violation
from tidemill.clock import Clock
from tidemill.core.jobs import Job
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class VerbCall:
    """A verb on its way to the store. `sent` is when its process sent it."""

    sender: str
    verb: str
    args: tuple[Any, ...]
    sent: float
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VerbEvent:
    """An executed verb. `changes` maps an id to the job before and after; None if it did not exist."""

    call: VerbCall
    reply: Any
    wall: float
    boot: float
    changes: dict[str, tuple[Job | None, Job | None]]
    jobs: dict[str, Job]

    @property
    def verb(self) -> str:
        return self.call.verb

    def created(self) -> Iterator[Job]:
        return (after for before, after in self.changes.values() if before is None and after is not None)

    def deleted(self) -> Iterator[Job]:
        return (before for before, after in self.changes.values() if before is not None and after is None)

    def claimed(self) -> Iterator[Job]:
        """Yields the jobs that were claimed in this verb."""
        for before, after in self.changes.values():
            if after is None or after.state is not State.RUNNING:
                continue
            if before is None or before.state is not State.RUNNING or identity(before) != identity(after):
                yield after


def identity(job: Job) -> tuple[int, int]:
    return job.fence, job.claim


class InvariantCheck(Protocol):
    """Checks every event; raises a Violation."""

    def see(self, event: VerbEvent) -> None: ...


@dataclass
class StoreMonitor:
    store: MemoryStore
    clock: Clock
    trace: Trace
    on_violation: Callable[[Violation], None]
    checkers: list[InvariantCheck] = field(default_factory=list)
    verbs: int = 0
    _before: dict[str, Job] = field(default_factory=dict)

    def jobs(self) -> dict[str, Job]:
        """The store's records. They are frozen, so a change is a new object."""
        return self.store._shared.records.jobs

    def execute(self, call: VerbCall) -> Any:
        """Executes a verb atomically, without waiting. Returns the reply, or the exception that the store
        raised."""
        wall, boot = self.clock.wall(), self.clock.boot()
        try:
            reply = _run_without_waiting(self._start(call))
        except Violation as violation:
            self.on_violation(violation)
            return violation
        except Exception as error:  # an error of the store is a reply too
            reply = error
        self._show(VerbEvent(call, reply, wall, boot, self._changes(), self.jobs()))
        return reply

    def _start(self, call: VerbCall) -> Any:
        return getattr(self.store, call.verb)(*call.args, **call.options)

    def _changes(self) -> dict[str, tuple[Job | None, Job | None]]:
        before, after = self._before, self.jobs()
        changes: dict[str, tuple[Job | None, Job | None]] = {
            id_: (before.get(id_), job) for id_, job in after.items() if before.get(id_) is not job
        }
        changes.update((id_, (job, None)) for id_, job in before.items() if id_ not in after)
        if changes:
            self._before = dict(after)
        return changes

    def _show(self, event: VerbEvent) -> None:
        self.verbs += 1
        self._note(event)
        if isinstance(event.reply, Exception):
            self.on_violation(Violation("J1", f"{event.verb} raised {event.reply!r}"))
            return
        try:
            for checker in self.checkers:
                checker.see(event)
        except Violation as violation:
            self.on_violation(violation)

    def _note(self, event: VerbEvent) -> None:
        for id_, (before, after) in event.changes.items():
            was = "-" if before is None else before.state.value
            now = "gone" if after is None else f"{after.state.value} {_detail(after)}"
            if (
                after is None
                or before is None
                or was != after.state.value
                or identity(before) != identity(after)
            ):
                self.trace.add(event.call.sender, f"{event.verb}: {id_} {was} → {now}")


def _detail(job: Job) -> str:
    parts = [f"fence={job.fence}", f"attempts={job.attempts}"]
    parts += [f"crashes={job.crashes}"] if job.crashes else []
    parts += [f"number={job.number} worker={job.worker}"] if job.state is State.RUNNING else []
    parts += [f"({job.reason})"] if job.reason else []
    return " ".join(parts)


def _run_without_waiting(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise Violation("J2", "a verb of the memory store waited in the middle: it is not one atomic step")
