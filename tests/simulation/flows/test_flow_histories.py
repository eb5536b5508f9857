"""Checks I17 to I19 over seeded histories of flows, and that each mutant violates them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from tests.simulation.flows.history import STORMS, run_flows
from tests.simulation.history import SimulationResult
from tidemill.core import flow_progress
from tidemill.core.documents import Advance, AdvanceResult
from tidemill.core.flow_graph import FlowGraph
from tidemill.core.flow_progress import FINAL_FLOW_STATES
from tidemill.engine.advance import forget_document
from tidemill.flows import advance as flows_advance
from tidemill.flows import advance_pass, cancel_and_retry
from tidemill.stores.memory import MemoryStore, documents
from tidemill.worker.flow_advancer import FlowAdvancer

SHARE = 2
"""The share of flow histories: one in this number of the requested histories."""

TRACE_LINES = 120


def test_every_flow_ends_and_no_step_twice(seeds: range, request: pytest.FixtureRequest) -> None:
    for seed in seeds:
        verdict = run_flows(seed)
        if request.config.getoption("seed", default=None) is not None:
            print(verdict.trace.render())
        if verdict.violation is not None:
            pytest.fail(_story(verdict), pytrace=False)


def test_in_pages_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps with thousands of jobs: no worklist page has all changes, no advance creates all jobs."""
    for module in (advance_pass, documents):
        monkeypatch.setattr(module, "MAX_CHANGES_PER_DOCUMENT", 1)
    for pages in ("MAX_JOBS_PER_ADVANCE", "MAX_JOBS_PER_CANCEL"):
        monkeypatch.setattr(flows_advance, pages, 1)
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
    patch.setattr(
        flow_progress,
        "finished_steps",
        lambda graph: {name for name, of in graph.step_progress.items() if of.done},
    )


def _ends_are_taken_and_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flows_advance, "_read_job_changes", lambda flow, work_items: ())


def _nobody_sweeps(patch: pytest.MonkeyPatch) -> None:
    async def sweep(_: FlowAdvancer) -> bool:
        return False

    patch.setattr(FlowAdvancer, "sweep", sweep)


def _any_revision_will_do(patch: pytest.MonkeyPatch) -> None:
    inner = MemoryStore.advance

    async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[AdvanceResult]:
        found = [self._shared.records.documents.get((one.kind, one.id)) for one in advances]
        current = [
            one if document is None else msgspec.structs.replace(one, expected=document.revision)
            for one, document in zip(advances, found, strict=True)
        ]
        return await inner(self, current)

    patch.setattr(MemoryStore, "advance", advance)


def _a_retry_repeats_everything(patch: pytest.MonkeyPatch) -> None:
    def everything(graph: FlowGraph) -> Iterator[tuple[str, int]]:
        for name, step_progress in graph.step_progress.items():
            yield from ((name, index) for index in range(step_progress.made))

    patch.setattr(cancel_and_retry, "jobs_to_retry", everything)


def _a_cancel_stops_nothing(patch: pytest.MonkeyPatch) -> None:
    def stopped_is_ignored(graph: FlowGraph, most: int, tasks: Container[str] | None = None) -> list[Any]:
        jobs = flow_progress._jobs_to_create(graph)
        return [job for job in jobs if tasks is None or job.work.task in tasks][:most]

    patch.setattr(flows_advance, "next_jobs", stopped_is_ignored)


def _failures_stop_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flow_progress, "is_failing", lambda graph: False)


def _flows_are_forgotten_as_they_end(patch: pytest.MonkeyPatch) -> None:
    inner = MemoryStore.advance

    async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[AdvanceResult]:
        answers = await inner(self, advances)
        for answer in answers:
            if answer.done and answer.document is not None and answer.document.state in FINAL_FLOW_STATES:
                forget_document(self._shared.records, answer.document)
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
def test_every_flow_mutant_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    histories = (run_flows(seed, profile) for seed in range(150) for profile in (None, STORMS))
    assert any(history.violation is not None for history in histories)


def _story(verdict: SimulationResult) -> str:
    lines = verdict.trace.render().splitlines()
    return "\n".join(
        [
            f"seed {verdict.seed} ({verdict.profile}): {verdict.violation}",
            f"replay it with: pytest tests/simulation/flows --seed={verdict.seed}",
            *lines[-TRACE_LINES:],
        ]
    )
