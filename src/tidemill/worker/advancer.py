"""Advances flows: at once those whose jobs this worker settled, and, as their leader, what others left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.contract.store import Store
from tidemill.core.courses import Course, Kind
from tidemill.core.queues import HOUR
from tidemill.core.transitions import UNKNOWN_TASK_PATIENCE
from tidemill.errors import StoreError
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import ChoreBroke
from tidemill.worker.emitter import Emitter, with_traceback
from tidemill.worker.leader import Leader

if TYPE_CHECKING:
    from tidemill.flows.doubts import Doubts
    from tidemill.flows.sweeping import Also

AGAIN_IN = 1.0
"""A store that did not answer is asked what it did."""
DUTY = "flows"
"""What somebody left behind waits for its leader: a worker that died, a person who brought a job back."""


class Advancer:
    """A flow with a step whose task this worker does not know is left for another, to which the duty is
    passed on. After a day in which nobody knew it, of which this worker has seen an hour itself, it fails."""

    def __init__(
        self, store: Store, tasks: Mapping[str, TaskDefinition], leader: Leader, emitter: Emitter
    ) -> None:
        self._store, self._tasks = store, tasks
        self.also: Also | None = None
        """Adds jobs that come of a flow, such as those that tell of its end."""
        self._leader, self._emitter = leader, emitter
        self.duty = leader.duty(DUTY)
        self._loop = asyncio.get_running_loop()
        self._noted: dict[str, None] = {}  # in order: a simulated history must replay
        self._left: dict[str, float] = {}  # since when, on the loop's clock
        self._given_up: set[str] = set()
        self._broken: set[str] = set()
        self._doubts: Doubts | None = None
        self._bell = asyncio.Event()
        self._turn = asyncio.Lock()
        self._next_due: float | None = None
        self.advanced = 0

    def note(self, flow: str) -> None:
        """A job of that flow was settled here."""
        self._noted[flow] = None
        self._bell.set()

    async def run(self) -> None:
        """What fails here is left on the agenda, and to the leader."""
        while True:
            await self._bell.wait()
            try:
                await self._advance_noted()
            except StoreError:
                if self._in_doubt:
                    await asyncio.sleep(AGAIN_IN)
                    self._bell.set()
            except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
                self._emitter.worker_event(ChoreBroke, chore=DUTY, **with_traceback(error))

    async def sweep(self) -> bool:
        """A chore of the leader's. True when there is more to do: only who has done what it can passes it on,
        else each round of many would wait until it leads again."""
        more = await self._sweep(None)
        if self._left and not more:
            await self._leader.pass_on(self.duty)
        return more

    def rest(self) -> float | None:
        """Until the timeout of the next flow."""
        return self._next_due

    async def leave(self) -> None:
        """The last that was settled here waits for no other worker to look."""
        if self._noted or self._in_doubt:
            await self._advance_noted()

    async def finish(self) -> None:
        """For a worker that runs until nothing is left to do."""
        await self._advance_noted()
        while await self._sweep(None):
            pass

    async def _advance_noted(self) -> None:
        self._bell.clear()
        self._noted |= dict.fromkeys(self._in_doubt)
        while self._noted:
            noted, self._noted = list(self._noted), {}
            while await self._sweep(noted):
                pass

    async def _sweep(self, ids: Sequence[str] | None) -> bool:
        """One at a time: who finds nothing left has counted what the one before advanced."""
        from tidemill.flows.doubts import Doubts
        from tidemill.flows.sweeping import FLOWS_AT_ONCE, sweep  # a client has no need of any of it
        from tidemill.flows.telling import tell_ended

        def advanced(before: Course, after: Course) -> None:
            self.advanced += 1
            tell_ended(self._emitter.signals, before, after)

        async with self._turn:
            doubts = self._doubts = self._doubts or Doubts(self._emitter.worker)
            await doubts.settle(self._store, advanced)
            swept = await sweep(
                self._store,
                self._tasks,
                ids,
                limit=FLOWS_AT_ONCE + len(self._left) + len(self._broken),
                given_up=self._given_up,
                doubts=doubts,
                tell=advanced,
                also=self.also,
            )
            self._tell_broken(swept.broken)
            if ids is None:
                self._broken, self._next_due = set(swept.broken), swept.next_due
                await self._leave(swept.left)
            return swept.more

    @property
    def _in_doubt(self) -> list[str]:
        return [] if self._doubts is None else self._doubts.flows

    def _tell_broken(self, broken: Mapping[str, Exception]) -> None:
        """Of each once: it is tried again and again."""
        for flow, error in broken.items():
            if flow not in self._broken:
                error.add_note(f"This is what kept flow {flow!r} from going on.")
                self._emitter.worker_event(ChoreBroke, chore=DUTY, **with_traceback(error))
        self._broken |= broken.keys()

    async def _leave(self, left: Mapping[str, str]) -> None:
        from tidemill.flows.advancing import stuck_for

        now = self._loop.time()
        self._left = {flow: self._left.get(flow, now) for flow in left}
        seen = [flow for flow, since in self._left.items() if now - since >= HOUR]
        if not seen:
            self._given_up.clear()
            return
        wall = (await self._store.read_clock()).wall
        courses = await self._store.courses(Kind.FLOW, seen)
        self._given_up = {
            course.id
            for course in courses
            if course is not None and stuck_for(course, wall) >= UNKNOWN_TASK_PATIENCE
        }
