"""A flow as it is stored: its steps, and the progress of their jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any, Self

import msgspec

from tidemill.core.jobs import COMPENSATION_SUFFIX
from tidemill.core.validation import problem_with_name


class IndexSet:
    """An immutable set of small integers, stored as the bits of one number."""

    __slots__ = ("_bits",)

    def __init__(self, bits: int = 0) -> None:
        self._bits = bits

    @classmethod
    def of(cls, indexes: Iterable[int]) -> Self:
        bits = 0
        for index in indexes:
            bits |= 1 << index
        return cls(bits)

    @classmethod
    def below(cls, count: int) -> Self:
        return cls((1 << count) - 1)

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(int(text or "0", 16))

    def as_text(self) -> str:
        return f"{self._bits:x}" if self._bits else ""

    def __or__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self._bits | other._bits)

    def __and__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self._bits & other._bits)

    def __sub__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self._bits & ~other._bits)

    def __contains__(self, index: int) -> bool:
        return bool(self._bits >> index & 1)

    def __iter__(self) -> Iterator[int]:
        """Yields the members in ascending order."""
        # Searching a text of binary digits is faster than searching the number.
        digits = f"{self._bits:b}"[::-1]
        index = digits.find("1")
        while index >= 0:
            yield index
            index = digits.find("1", index + 1)

    def __len__(self) -> int:
        return self._bits.bit_count()

    def __bool__(self) -> bool:
        return self._bits != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and self._bits == other._bits

    def __hash__(self) -> int:
        return hash(self._bits)

    def __repr__(self) -> str:
        return f"IndexSet.of({list(self)})"


EMPTY_INDEXES = IndexSet()


def encode_indexes(value: Any) -> str:
    """Returns an IndexSet as text. This is the `enc_hook` of the msgspec encoder; it raises `TypeError` for
    other types."""
    if isinstance(value, IndexSet):
        return value.as_text()
    raise TypeError(f"objects of type {type(value).__name__} are not data")


def decode_indexes(type_: type, value: Any) -> Any:
    """Returns the IndexSet that a text stands for. This is the `dec_hook` of the msgspec decoder; it raises
    `TypeError` for other types."""
    if type_ is IndexSet:
        return IndexSet.from_text(value)
    raise TypeError(f"objects of type {type_.__name__} are not data")


class OnFailure(StrEnum):
    """The reaction of a flow to a job that has failed for good.

    - `fail`: no new job starts, and the flow fails.
    - `continue`: the flow goes on, and the job's result is None.
    - `compensate`: a compensation job runs, and its result is used."""

    FAIL = "fail"
    CONTINUE = "continue"
    COMPENSATE = "compensate"


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options with which the jobs of a step are created. An optional field that is None has the task's
    default."""

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


class FanOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that makes a step create one job per element of a list.

    - `argument`: the argument that receives the element.
    - `step`: the step whose result is the list.
    - `items`: the list itself, if `step` is None."""

    argument: str
    step: str | None = None
    items: tuple[msgspec.Raw, ...] = ()


class StepNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a flow.

    - `arguments`: values that are known from the start.
    - `reads`: maps an argument to the step whose result it takes.
    - `after`: steps that must finish first, although their results are not used.
    - `fan_out`: if given, the step has one job per element of a list."""

    name: str
    work: JobTemplate
    arguments: dict[str, msgspec.Raw] = {}
    reads: dict[str, str] = {}
    after: tuple[str, ...] = ()
    fan_out: FanOut | None = None
    on_failure: OnFailure = OnFailure.FAIL
    compensation: JobTemplate | None = None

    @property
    def parents(self) -> frozenset[str]:
        mapped = () if self.fan_out is None or self.fan_out.step is None else (self.fan_out.step,)
        return frozenset((*self.reads.values(), *self.after, *mapped))


class StepProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a step. Sets contain the indexes of its jobs.

    - `count`: the number of the step's jobs, None until the step begins.
    - `made`: the number of jobs created so far.
    - `done`, `failed`: jobs that have ended.
    - `replaced`: failed jobs that have a compensation job.
    - `saved`: jobs whose compensation job is done.
    - `lost`: jobs whose compensation job has failed."""

    count: int | None = None
    made: int = 0
    done: IndexSet = EMPTY_INDEXES
    failed: IndexSet = EMPTY_INDEXES
    replaced: IndexSet = EMPTY_INDEXES
    saved: IndexSet = EMPTY_INDEXES
    lost: IndexSet = EMPTY_INDEXES

    @property
    def live(self) -> IndexSet:
        return IndexSet.below(self.made) - self.done - self.failed

    @property
    def compensating(self) -> IndexSet:
        return self.replaced - self.saved - self.lost


class StopReason(StrEnum):
    """Why a flow was stopped."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"


class FlowStop(msgspec.Struct, frozen=True):
    """A record which says that a flow was stopped, by a cancellation or a timeout. `cleared=True`: the flow's
    live jobs were cancelled too."""

    why: StopReason
    reason: str
    cleared: bool = False


class FlowGraph(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A flow with its steps and their progress, as stored in its document.

    - `sent`: the id of the client call that started the flow. With it, the client recognises its flow.
    - `keep`: how many seconds the flow is kept after its end, None for the default.
    - `timeout`: how many seconds the flow may take, None for no bound.
    - `stuck`: since when (wall time) the flow waits for a worker that knows the tasks of its next jobs.
    - `ended_by`: the id of the advance that ended the flow. With it, a worker recognises its advance."""

    nodes: tuple[StepNode, ...]
    step_progress: dict[str, StepProgress] = {}
    key: str | None = None
    sent: str = ""
    keep: float | None = None
    timeout: float | None = None
    stopped: FlowStop | None = None
    stuck: float | None = None
    ended_by: str = ""

    def of(self, step: str) -> StepProgress:
        return self.step_progress.get(step, _NOT_STARTED)

    def node(self, step: str) -> StepNode | None:
        return next((node for node in self.nodes if node.name == step), None)

    def going_on(self, changes: Mapping[str, StepProgress]) -> FlowGraph:
        return msgspec.structs.replace(self, step_progress={**self.step_progress, **changes})


_NOT_STARTED = StepProgress()
_ENCODER = msgspec.json.Encoder(enc_hook=encode_indexes)
_DECODER = msgspec.json.Decoder(FlowGraph, dec_hook=decode_indexes)


def encode_graph(graph: FlowGraph) -> bytes:
    return _ENCODER.encode(graph)


def decode_graph(record: bytes) -> FlowGraph:
    return _DECODER.decode(record)


def problem_with_graph(graph: FlowGraph) -> str | None:
    """Returns why a flow could never run, naming the step; None if it can run."""
    if not graph.nodes:
        return "a flow has at least one step; add one with flow.add(task, …)"
    names = Counter(node.name for node in graph.nodes)
    for node in graph.nodes:
        if problem := _problem_with_node(node, names):
            return f"step {node.name[:50]!r}: {problem}"
    return _problem_with_cycles(graph)


def problem_with_step_name(name: str) -> str | None:
    if problem := problem_with_name("name", name):
        return problem
    if "/" in name or name.endswith(COMPENSATION_SUFFIX):
        return (
            f"name: must not hold a slash, nor end with {COMPENSATION_SUFFIX!r}: ids of jobs are made of it"
        )
    return None


def _problem_with_node(node: StepNode, names: Counter[str]) -> str | None:
    if problem := problem_with_step_name(node.name):
        return problem
    if names[node.name] > 1:
        return 'another step has that name; give one of them its own with .named("…")'
    for parent in sorted(node.parents):
        if parent not in names:
            return f"it waits for {parent!r}, and the flow has no such step"
    mapped = () if node.fan_out is None else (node.fan_out.argument,)
    argument_names = (*node.arguments, *node.reads, *mapped)
    for argument in argument_names:
        if argument_names.count(argument) > 1:
            return f"argument {argument!r} is given twice"
    return None


def _problem_with_cycles(graph: FlowGraph) -> str | None:
    try:
        TopologicalSorter({node.name: sorted(node.parents) for node in graph.nodes}).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]
        return (
            f"step {circle[0]!r}: it would wait for itself ({' after '.join(circle)}); take one of these away"
        )
    return None
