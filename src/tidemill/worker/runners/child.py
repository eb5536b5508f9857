"""The inside of an isolated process: one job at a time, until its worker hangs up."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tidemill.clock import SystemClock
from tidemill.core.job import Error
from tidemill.core.needs import Need
from tidemill.core.outcomes import Done, Fail, Outcome
from tidemill.core.retry import Retry
from tidemill.core.spending import Observation, Usage
from tidemill.errors import InvalidPayload, StoreUnavailable
from tidemill.logs import LogSettings, configure
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.metering import Meter
from tidemill.telemetry.current import CURRENT
from tidemill.worker.attempt import storable
from tidemill.worker.parent import die_with_parent
from tidemill.worker.refused import refused
from tidemill.worker.runners.messages import (
    Ended,
    Heard,
    Line,
    Place,
    Prepare,
    Progress,
    Ready,
    Reserve,
    Reserved,
    Run,
    Used,
    encode,
    for_child,
)
from tidemill.worker.runners.places import CannotIsolate, find
from tidemill.worker.translate import describe, outcome_of


class PipeReporter:
    """News of an attempt, sent up the pipe. A cancelled job's process is killed, so `cancelled` is
    only ever true when the worker itself is gone."""

    def __init__(self, pipe: Connection, run: Run) -> None:
        self._pipe = pipe
        self._tally = PipeTally(pipe, run)
        self._meter = Meter(run.job.needs, run.pools, self._tally)

    def progress(self, fraction: float, note: str | None) -> None:
        self._pipe.send_bytes(encode(Progress(fraction, None if note is None else storable(note))))

    def log(self, line: str) -> None:
        self._pipe.send_bytes(encode(Line(storable(line))))

    def cancelled(self) -> bool:
        return not self._tally.asking.locked() and self._pipe.poll()

    def meter(self) -> Meter:
        return self._meter


class PipeTally:
    """What the attempt tells of its pools, sent up the pipe. One question at a time has its answer."""

    def __init__(self, pipe: Connection, run: Run) -> None:
        self._pipe = pipe
        self._clock = SystemClock()
        self._began, self._wall, self._timeout = self._clock.boot(), run.wall, run.timeout
        self.asking = threading.Lock()

    def used(self, usage: Usage) -> None:
        self._pipe.send_bytes(encode(Used(usage)))

    def heard(self, seen: Observation) -> None:
        self._pipe.send_bytes(encode(Heard(seen)))

    def wall(self) -> float:
        return self._wall + self._clock.boot() - self._began

    def left(self) -> float:
        return self._timeout - (self._clock.boot() - self._began)

    async def reserve(self, need: Need) -> float | None:
        return await asyncio.to_thread(self._ask, need)

    def _ask(self, need: Need) -> float | None:
        with self.asking:
            self._pipe.send_bytes(encode(Reserve(need)))
            answer = for_child(self._pipe.recv_bytes())
        if not isinstance(answer, Reserved) or answer.problem is not None:
            raise StoreUnavailable(answer.problem if isinstance(answer, Reserved) else "answered out of turn")
        return answer.wait


def main(pipe: Connection, parent: int, logs: LogSettings | None) -> None:
    """A session of its own lets the worker kill whatever the handler started along with it, and
    keeps a terminal's Ctrl-C away: draining is the worker's decision."""
    os.setsid()
    die_with_parent(signal.SIGKILL, parent)
    # A handler, not SIG_IGN, which programs started by the job would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    found: dict[Place, TaskDefinition] = {}
    while True:
        try:
            message = for_child(pipe.recv_bytes())
        except EOFError:
            return
        match message:
            case Prepare(place):
                pipe.send_bytes(encode(_prepare(place, found)))
                if logs is not None:  # after the import: a program that sets up its own comes first
                    configure(format=logs.format, level=logs.level)
                    logs = None
            case Run():
                # What a handler sets in its context ends with its attempt, as it does in a worker.
                attempt = contextvars.copy_context()
                outcome = attempt.run(_run, message, found[message.place], PipeReporter(pipe, message))
                pipe.send_bytes(encode(Ended(outcome)))


def _prepare(place: Place, found: dict[Place, TaskDefinition]) -> Ready:
    if place not in found:
        try:
            found[place] = find(place)
        except CannotIsolate as error:
            return Ready(str(error))
    return Ready()


def _run(run: Run, definition: TaskDefinition, reporter: PipeReporter) -> Outcome:
    CURRENT.set(run.job)
    try:
        args, kwargs = definition.payload.decode(run.job.payload)
    except InvalidPayload as error:
        return Fail(Error("InvalidPayload", str(error)), "invalid payload")
    if definition.takes_context:
        args = (Context.of(run.job, reporter), *args)
    try:
        result = _call(definition, lambda: definition.handler(*args, **kwargs))
    # Everything, a Rust panic too: leaving here would read as a crash. Signals do not raise in this process.
    except BaseException as error:  # noqa: BLE001
        # Another name: a plain function, or one that is registered as several tasks.
        policy = definition.retry if definition.name == run.job.task else Retry(**run.policy)  # type: ignore[arg-type]
        judged = refused(reporter.meter(), error)
        return judged or outcome_of(error, policy, run.job.attempt, run.job.priority, run.chance)
    try:
        return Done(definition.result.encode(result))
    except Exception as error:  # noqa: BLE001 - encoding runs a user's own methods
        return Fail(describe(error), "result cannot be stored")


def _call(definition: TaskDefinition, call: Callable[[], Any]) -> Any:
    if not definition.is_async:
        return call()

    async def on_a_loop() -> Any:
        return await call()

    return asyncio.run(on_a_loop())
