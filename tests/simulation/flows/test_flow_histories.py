"""I17 to I19 over seeded histories of flows, and that breaking the code breaks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from tests.simulation.flows.history import STORMS, run_flows
from tests.simulation.history import Verdict
from tidemill.core import graph_next, graph_state
from tidemill.core.courses import Advance, Advanced
from tidemill.core.graph import Graph
from tidemill.core.graph_state import ENDED
from tidemill.engine.courses import forget
from tidemill.flows import advancing, steering, sweeping
from tidemill.stores.memory import MemoryStore, courses
from tidemill.worker.advancer import Advancer

SHARE = 2
"""Of the histories that are asked for, one in so many is one of flows."""

TRACE_LINES = 120


def test_every_flow_ends_and_no_step_twice(seeds: range, request: pytest.FixtureRequest) -> None:
    for seed in seeds:
        verdict = run_flows(seed)
        if request.config.getoption("seed", default=None) is not None:
            print(verdict.trace.render())
        if verdict.violation is not None:
            pytest.fail(_story(verdict), pytrace=False)


def test_in_pages_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As flows go whose steps have thousands of jobs: no agenda shows all, and no advance makes all."""
    for module in (sweeping, courses):
        monkeypatch.setattr(module, "ENDS_AT_ONCE", 1)
    for pages in ("JOBS_AT_ONCE", "CANCELS_AT_ONCE"):
        monkeypatch.setattr(advancing, pages, 1)
    for seed in range(30):
        verdict = run_flows(seed)
        if verdict.violation is not None:
            pytest.fail(_story(verdict), pytrace=False)


def test_all_of_it_happens() -> None:
    seen: Counter[str] = Counter()
    for seed in range(40):
        seen.update(run_flows(seed).seen)
    wanted = {"_kill", "_pause", "_storm", "_drain", "compensated", "retried", "mapped", "flow done", "gone"}
    assert {word for word in wanted if not seen[word]} == set()


def _joins_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(graph_next, "over", lambda graph: {name for name, of in graph.going.items() if of.done})


def _ends_are_taken_and_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(advancing, "_told", lambda flow, stirred: ())


def _nobody_sweeps(patch: pytest.MonkeyPatch) -> None:
    async def sweep(_: Advancer) -> bool:
        return False

    patch.setattr(Advancer, "sweep", sweep)


def _any_revision_will_do(patch: pytest.MonkeyPatch) -> None:
    inner = MemoryStore.advance

    async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[Advanced]:
        found = [self._shared.records.courses.get((one.kind, one.id)) for one in advances]
        current = [
            one if course is None else msgspec.structs.replace(one, expected=course.revision)
            for one, course in zip(advances, found, strict=True)
        ]
        return await inner(self, current)

    patch.setattr(MemoryStore, "advance", advance)


def _a_retry_repeats_everything(patch: pytest.MonkeyPatch) -> None:
    def everything(graph: Graph) -> Iterator[tuple[str, int]]:
        for name, going in graph.going.items():
            yield from ((name, index) for index in range(going.made))

    patch.setattr(steering, "to_retry", everything)


def _a_cancel_stops_nothing(patch: pytest.MonkeyPatch) -> None:
    def stopped_is_ignored(graph: Graph, most: int) -> list[Any]:
        return list(graph_next._making(graph))[:most]

    patch.setattr(advancing, "making", stopped_is_ignored)


def _failures_stop_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(graph_state, "is_failing", lambda graph: False)


def _flows_are_forgotten_as_they_end(patch: pytest.MonkeyPatch) -> None:
    inner = MemoryStore.advance

    async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[Advanced]:
        answers = await inner(self, advances)
        for answer in answers:
            if answer.done and answer.course is not None and answer.course.state in ENDED:
                forget(self._shared.records, answer.course)
        return answers

    patch.setattr(MemoryStore, "advance", advance)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    _joins_do_not_wait,
    _ends_are_taken_and_forgotten,
    _nobody_sweeps,
    _any_revision_will_do,
    _a_retry_repeats_everything,
    _a_cancel_stops_nothing,
    _failures_stop_nothing,
    _flows_are_forgotten_as_they_end,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_what_breaks_them_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    histories = (run_flows(seed, profile) for seed in range(40) for profile in (None, STORMS))
    assert any(history.violation is not None for history in histories)


def _story(verdict: Verdict) -> str:
    lines = verdict.trace.render().splitlines()
    return "\n".join(
        [
            f"seed {verdict.seed} ({verdict.profile}): {verdict.violation}",
            f"replay it with: pytest tests/simulation/flows --seed={verdict.seed}",
            *lines[-TRACE_LINES:],
        ]
    )
