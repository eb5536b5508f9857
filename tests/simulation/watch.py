"""Executes verbs on the store and shows every invariant what each of them changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.simulation.trace import Trace, Violation
from tidemill.clock import Clock
from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class Call:
    """A verb on its way to the store. `sent` is when its sender let go of it."""

    sender: str
    verb: str
    args: tuple[Any, ...]
    sent: float
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """A verb that was executed. `changes` maps an id to the job before and after; None: not there."""

    call: Call
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
        """Jobs that got a new claim in this verb."""
        for before, after in self.changes.values():
            if after is None or after.state is not State.RUNNING:
                continue
            if before is None or before.state is not State.RUNNING or identity(before) != identity(after):
                yield after


def identity(job: Job) -> tuple[int, int]:
    return job.fence, job.claim


class Checker(Protocol):
    """Looks at every event; raises a Violation."""

    def see(self, event: Event) -> None: ...


@dataclass
class Watch:
    store: MemoryStore
    clock: Clock
    trace: Trace
    on_violation: Callable[[Violation], None]
    checkers: list[Checker] = field(default_factory=list)
    verbs: int = 0
    _before: dict[str, Job] = field(default_factory=dict)

    def jobs(self) -> dict[str, Job]:
        """The store's own records: frozen values, so that a change is a new object."""
        return self.store._shared.records.jobs

    def execute(self, call: Call) -> Any:
        """The reply, or the exception the store raised. A verb is one atomic step: it never waits."""
        wall, boot = self.clock.wall(), self.clock.boot()
        try:
            reply = _without_waiting(self._start(call))
        except Violation as violation:
            self.on_violation(violation)
            return violation
        except Exception as error:  # an error of the store is a reply too
            reply = error
        self._show(Event(call, reply, wall, boot, self._changes(), self.jobs()))
        return reply

    def _start(self, call: Call) -> Any:
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

    def _show(self, event: Event) -> None:
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

    def _note(self, event: Event) -> None:
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


def _without_waiting(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise Violation("J2", "a verb of the memory store waited in the middle: it is not one atomic step")
