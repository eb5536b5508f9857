"""Whether an advance that nobody answered has ended its flow: who ended it tells, and nobody else will.

An advance that ends a flow is signed in its record. Of each revision one advance is taken, so a record that
has gone on says whose it was; one that has not may still be changed by what is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.courses import Advance, Advanced, Course, Kind
from tidemill.core.graph import Graph, decode
from tidemill.core.graph_state import ENDED, state_of

Tell = Callable[[Course, Course], object]
"""Is given a flow that was advanced as it was, and as it is now."""


class Doubts:
    """Of one who advances flows, whose name `by` nobody else has. '' is who would not tell anybody."""

    def __init__(self, by: str = "") -> None:
        self._by = by
        self._sent: dict[str, Course] = {}

    @property
    def flows(self) -> list[str]:
        return list(self._sent)

    def signed(self, before: Course, graph: Graph) -> Graph:
        state = state_of(graph)
        ends = state in ENDED and state != before.state
        return replace(graph, ended_by=self._signature(before)) if self._by and ends else graph

    def sending(self, pending: Iterable[tuple[Course, Advance]]) -> None:
        for before, advance in pending:
            state = before.state if advance.next is None else advance.next.state
            if self._by and state in ENDED and state != before.state:
                self._sent[before.id] = before

    def answered(self, before: Course, answer: Advanced) -> bool:
        """Whether it was taken: this time, or the time before, which was not answered."""
        doubted = self._sent.pop(before.id, None)
        return answer.done or (doubted is not None and self._is_ours(doubted, answer.course))

    async def settle(self, store: Store, tell: Tell) -> None:
        """What is still as it was stays in doubt."""
        asked = list(self._sent.values())
        found = await store.courses(Kind.FLOW, [before.id for before in asked]) if asked else ()
        for before, course in zip(asked, found, strict=True):
            if course is None or course.revision != before.revision:
                del self._sent[before.id]
            if course is not None and self._is_ours(before, course):
                tell(before, course)

    def _is_ours(self, before: Course, course: Course | None) -> bool:
        return course is not None and decode(course.record).ended_by == self._signature(before)

    def _signature(self, before: Course) -> str:
        return f"{self._by} {before.revision}"
