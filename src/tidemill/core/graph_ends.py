"""What has become of a flow's jobs goes into its record: in any order, and as often as it is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from tidemill.core.flow_jobs import COMPENSATION
from tidemill.core.graph import Going, Graph
from tidemill.core.index_sets import IndexSet
from tidemill.core.states import LIVE, State


class JobEnd(msgspec.Struct, frozen=True):
    """`state` is the one the job is in now, None when it is gone. `step` as it stands in the job's id, with
    COMPENSATION behind it for a job in the place of another."""

    step: str
    index: int
    state: State | None


class _Told(msgspec.Struct):
    """What is told of the jobs of one step: of each the last word."""

    done: IndexSet
    failed: IndexSet
    gone: IndexSet
    back: IndexSet


def ended(graph: Graph, ends: Iterable[JobEnd]) -> Graph:
    """A job that is live again, whoever brought it back, takes a flow up that was stopped."""
    changes: dict[str, Going] = {}
    stopped = graph.stopped
    for step, told in _by_step(graph, ends).items():
        name = step.removesuffix(COMPENSATION)
        going = changes.get(name) or graph.of(name)
        changes[name] = _ended(going, told) if name == step else _compensation_ended(going, told)
        stopped = None if told.back else stopped
    return replace(graph.going_on(changes), stopped=stopped) if changes else graph


def _by_step(graph: Graph, ends: Iterable[JobEnd]) -> dict[str, _Told]:
    states: dict[str, dict[int, State | None]] = {}
    for end in ends:
        states.setdefault(end.step, {})[end.index] = end.state
    return {step: _told(_jobs_of(graph, step), of) for step, of in states.items()}


def _jobs_of(graph: Graph, step: str) -> IndexSet:
    going = graph.of(step.removesuffix(COMPENSATION))
    return going.replaced if step.endswith(COMPENSATION) else IndexSet.below(going.made)


def _told(ours: IndexSet, states: Mapping[int, State | None]) -> _Told:
    def those(*which: State | None) -> IndexSet:
        return ours & IndexSet.of(index for index, state in states.items() if state in which)

    return _Told(
        done=those(State.DONE),
        failed=those(State.FAILED, State.CANCELLED),
        gone=those(None),
        back=those(*LIVE),
    )


def _ended(going: Going, told: _Told) -> Going:
    """Jobs of a flow that is over are pruned one by one before it goes itself: one that was done stays so."""
    failed = told.failed | (told.gone - going.done)
    return replace(
        going,
        done=(going.done | told.done) - failed - told.back,
        failed=(going.failed | failed) - told.done - told.back,
    )


def _compensation_ended(going: Going, told: _Told) -> Going:
    failed = told.failed | (told.gone - going.saved)
    return replace(
        going,
        saved=(going.saved | told.done) - failed - told.back,
        lost=(going.lost | failed) - told.done - told.back,
    )
