"""A flow as it is kept: its steps, and how far each of them is.

A step becomes one job, or one for each element of a list. A job exists when it may run, never before. Which
jobs of a step have ended is a set of indexes and not a counter: an end that is told twice changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

import msgspec

from tidemill.core.flow_jobs import COMPENSATION
from tidemill.core.index_sets import NONE, IndexSet, from_json, to_json
from tidemill.core.names import problem_with_name


class OnFailure(StrEnum):
    """What becomes of a flow when a job of a step has failed for good. `fail`: nothing new is started, and
    the flow fails. `continue`: the job is let go, and its result reads as None. `compensate`: another task
    runs in its place, whose result stands for it."""

    FAIL = "fail"
    CONTINUE = "continue"
    COMPENSATE = "compensate"


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the jobs of a step are made with. What is None is left to the task."""

    task: str
    queue: str
    priority: int
    delay: float = 0.0
    at: float | None = None
    expires: float | None = None
    timeout: float | None = None
    key: str | None = None
    cost: dict[str, float | dict[str, float]] | None = None
    trace: str | None = None
    tags: tuple[str, ...] = ()


class Each(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job for each element: of what `step` returns, or of `items`, until all have theirs. It is given as
    `argument`."""

    argument: str
    step: str | None = None
    items: tuple[msgspec.Raw, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step. `arguments` are those that are known, `reads` those that are other steps' results. `after` are
    steps it waits for without taking anything from them."""

    name: str
    work: Work
    arguments: dict[str, msgspec.Raw] = {}
    reads: dict[str, str] = {}
    after: tuple[str, ...] = ()
    each: Each | None = None
    on_failure: OnFailure = OnFailure.FAIL
    compensation: Work | None = None

    @property
    def parents(self) -> frozenset[str]:
        mapped = () if self.each is None or self.each.step is None else (self.each.step,)
        return frozenset((*self.reads.values(), *self.after, *mapped))


class Going(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a step is. `count` is how many jobs it has in all, None until it begins; `made` so many are
    there. `replaced` are those whose compensation is there, `saved` those where it is done, and `lost` where
    it has failed as well."""

    count: int | None = None
    made: int = 0
    done: IndexSet = NONE
    failed: IndexSet = NONE
    replaced: IndexSet = NONE
    saved: IndexSet = NONE
    lost: IndexSet = NONE

    @property
    def live(self) -> IndexSet:
        return IndexSet.below(self.made) - self.done - self.failed

    @property
    def compensating(self) -> IndexSet:
        return self.replaced - self.saved - self.lost


class Why(StrEnum):
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"


class Stopped(msgspec.Struct, frozen=True):
    """It ends before its steps do: whatever of it is live is to be cancelled. That was done when it is
    `cleared`: a job that is live after that was brought back."""

    why: Why
    reason: str
    cleared: bool = False


class Graph(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`keep` is how long it stays once it has ended, None for the usual; `timeout` how long it may take.
    `sent` tells the call that began it from others with the same key, and `ended_by` the one that ended it
    last: its answer may have been lost. From `stuck` on, a wall time, somebody who does not know the tasks it
    goes on with has looked at it in vain."""

    nodes: tuple[Node, ...]
    going: dict[str, Going] = {}
    key: str | None = None
    sent: str = ""
    keep: float | None = None
    timeout: float | None = None
    stopped: Stopped | None = None
    stuck: float | None = None
    ended_by: str = ""

    def of(self, step: str) -> Going:
        return self.going.get(step, _NOT_BEGUN)

    def node(self, step: str) -> Node | None:
        return next((node for node in self.nodes if node.name == step), None)

    def going_on(self, changes: Mapping[str, Going]) -> Graph:
        return msgspec.structs.replace(self, going={**self.going, **changes})


_NOT_BEGUN = Going()
_ENCODER = msgspec.json.Encoder(enc_hook=to_json)
_DECODER = msgspec.json.Decoder(Graph, dec_hook=from_json)


def encode(graph: Graph) -> bytes:
    return _ENCODER.encode(graph)


def decode(record: bytes) -> Graph:
    return _DECODER.decode(record)


def problem_with(graph: Graph) -> str | None:
    """Why a flow could never run, naming the step."""
    if not graph.nodes:
        return "a flow has at least one step; add one with flow.add(task, …)"
    names = Counter(node.name for node in graph.nodes)
    for node in graph.nodes:
        if problem := _problem_with_node(node, names):
            return f"step {node.name[:50]!r}: {problem}"
    return _problem_with_circles(graph)


def problem_with_step_name(name: str) -> str | None:
    if problem := problem_with_name("name", name):
        return problem
    if "/" in name or name.endswith(COMPENSATION):
        return f"name: must not hold a slash, nor end with {COMPENSATION!r}: ids of jobs are made of it"
    return None


def _problem_with_node(node: Node, names: Counter[str]) -> str | None:
    if problem := problem_with_step_name(node.name):
        return problem
    if names[node.name] > 1:
        return 'another step has that name; give one of them its own with .named("…")'
    for parent in sorted(node.parents):
        if parent not in names:
            return f"it waits for {parent!r}, and the flow has no such step"
    given = (*node.arguments, *node.reads, *(() if node.each is None else (node.each.argument,)))
    for argument in given:
        if given.count(argument) > 1:
            return f"argument {argument!r} is given twice"
    return None


def _problem_with_circles(graph: Graph) -> str | None:
    try:
        TopologicalSorter({node.name: sorted(node.parents) for node in graph.nodes}).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]
        return (
            f"step {circle[0]!r}: it would wait for itself ({' after '.join(circle)}); take one of these away"
        )
    return None
