"""Builds the jobs of flow steps: reads their inputs, and computes the key, pools and cost that their task
defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob
from tidemill.core.documents import DocumentJob, DocumentKind
from tidemill.core.flow_graph import FlowGraph, JobTemplate, StepNode, decode_graph
from tidemill.core.flow_progress import StepJob
from tidemill.core.jobs import (
    COMPENSATION_SUFFIX,
    Error,
    FlowPosition,
    Job,
    NewJob,
    ResultReference,
    flow_job_id,
)
from tidemill.core.needs import Need
from tidemill.errors import InvalidJob, InvalidPayload, PayloadTooLarge
from tidemill.flows.results import (
    MAX_RESULTS_PER_READ,
    JsonMembers,
    ResultMissing,
    ResultsTooLarge,
    StepFailure,
    load_argument_results,
    load_results,
)
from tidemill.tasks.definition import TaskDefinition


class JobInput(msgspec.Struct, frozen=True, kw_only=True):
    """The values that are needed to build one job of a flow.

    - `element`: the element of the list, for a step with one job per element.
    - `results`: results of earlier steps by argument name, if key, pools or cost depend on them.
    - `failed`: the failed job, if this job is a compensation.
    - `problem`: why the job cannot be created; None if it can.
    """

    element: msgspec.Raw | None = None
    results: JsonMembers = {}
    failed: Job | None = None
    problem: Error | None = None


def build_job(
    flow: str, graph: FlowGraph, step_job: StepJob, task: TaskDefinition | None, inputs: JobInput
) -> DocumentJob:
    """Returns a job of a flow step, ready to be created. `task` is None if no worker knows the task. A job
    that cannot be built is returned with an error and stored as failed."""
    node, work = step_job.node, step_job.work
    step = node.name + COMPENSATION_SUFFIX * step_job.compensates
    job = NewJob(
        id=flow_job_id(flow, step, step_job.index),
        task=work.task,
        payload=b"{}",
        priority=work.priority,
        delay=work.delay,
        at=work.at,
        expires=work.expires,
        timeout=work.timeout,
        key=work.key,
        trace=work.trace or flow,
        tags=work.tags,
        flow=FlowPosition(flow, step, step_job.index, find_reads(graph, node)),
    )
    try:
        job = msgspec.structs.replace(job, payload=_build_payload(flow, graph, step_job, task, inputs))
        if inputs.problem is not None or task is None:
            return DocumentJob(work.queue, job, inputs.problem or _unknown_task_error(work.task))
        return DocumentJob(work.queue, _apply_task(job, work, task, inputs.results))
    except Exception as error:  # noqa: BLE001 - the task's own functions may raise anything
        return DocumentJob(work.queue, job, Error(type(error).__name__, f"step {node.name!r}: {error}"))


def find_reads(graph: FlowGraph, node: StepNode) -> dict[str, ResultReference]:
    """Returns which results a step reads: a mapping from argument name to a reference to another step. For a
    step with one job per element, the argument gets the list of all results."""
    return {
        argument: ResultReference(step, _mapped_count(graph, step)) for argument, step in node.reads.items()
    }


def depends_on_arguments(task: TaskDefinition, work: JobTemplate) -> bool:
    """True if the key, pools or cost of a step's jobs are computed from their arguments."""
    key = work.key is None and task.key is not None
    cost = work.cost is None and callable(task.cost)
    return key or cost or any(use.key is not None for use in task.pools)


def _mapped_count(graph: FlowGraph, step: str) -> int | None:
    node = graph.node(step)
    return None if node is None or node.fan_out is None else graph.of(step).count


def _build_payload(
    flow: str, graph: FlowGraph, step_job: StepJob, task: TaskDefinition | None, inputs: JobInput
) -> bytes:
    node = step_job.node
    if step_job.compensates:
        names = ("failure",) if task is None else task.payload.names
        if len(names) != 1:
            raise InvalidJob(f"the task {step_job.work.task!r} must take one argument, a StepFailure")
        return msgspec.json.encode({names[0]: _make_step_failure(flow, graph, step_job, inputs.failed)})
    members: dict[str, Any] = dict(node.arguments)
    if node.fan_out is not None and inputs.element is not None:
        members[node.fan_out.argument] = inputs.element
    return msgspec.json.encode(members)


def _make_step_failure(flow: str, graph: FlowGraph, step_job: StepJob, failed: Job | None) -> StepFailure:
    node = step_job.node
    return StepFailure(
        flow=flow,
        key=graph.key,
        step=node.name,
        index=step_job.index,
        task=node.work.task,
        arguments={} if failed is None else msgspec.json.decode(failed.payload),
        error=_failure_cause(failed),
        attempts=0 if failed is None else failed.attempts,
    )


def _failure_cause(failed: Job | None) -> Error:
    if failed is None:
        return Error("JobGone", "the job was deleted")
    return failed.error or Error("Cancelled", failed.reason or "it was cancelled")


def _apply_task(job: NewJob, work: JobTemplate, task: TaskDefinition, results: JsonMembers) -> NewJob:
    if len(job.payload) > task.max_bytes:
        raise PayloadTooLarge(
            f"the payload has {len(job.payload)} bytes, the task takes at most {task.max_bytes}"
        )
    arguments = _decode_arguments(job, task, results) if depends_on_arguments(task, work) else {}
    key = task.key(**arguments) if work.key is None and task.key is not None else work.key
    if not isinstance(key, str | None):
        raise InvalidJob(f"key: the task's function must return str, returned {type(key).__name__}")
    return msgspec.structs.replace(
        job,
        key=key,
        needs=_compute_needs(task, arguments, work),
        batching=None if task.batch is None else task.batch.policy,
    )


def _decode_arguments(job: NewJob, task: TaskDefinition, results: JsonMembers) -> Mapping[str, Any]:
    assert job.flow is not None  # noqa: S101 - only flow jobs are built here
    members = msgspec.json.decode(job.payload, type=JsonMembers)
    payload = msgspec.json.encode({**members, **results})
    try:
        return task.payload.by_name(*task.payload.decode(payload))
    except InvalidPayload as error:
        raise InvalidPayload(f"{error}{explain_sources(job.flow)}") from None


def explain_sources(flow: FlowPosition) -> str:
    """Returns a text for an error message that says which arguments are results of other steps; '' if none
    is."""
    sources = ", ".join(
        f"{argument} is what step {read.step!r} returned" for argument, read in flow.reads.items()
    )
    return f" ({sources})" if sources else ""


def _compute_needs(task: TaskDefinition, arguments: Mapping[str, Any], work: JobTemplate) -> tuple[Need, ...]:
    if not task.pools:
        return ()
    from tidemill.tasks.costs import compute_needs  # loads all of pools: most tasks need none

    return compute_needs(task, arguments, work.cost)


async def compute_late_needs(store: Store, job: ClaimedJob, task: TaskDefinition) -> tuple[Need, ...]:
    """Returns the pool needs of a claimed job, computed from its complete arguments. Used for a job that was
    created before all its arguments were known."""
    from tidemill.tasks.costs import compute_needs

    assert job.flow is not None  # noqa: S101 - only flow jobs come here
    [document] = await store.documents(DocumentKind.FLOW, [job.flow.id])
    node = (
        None
        if document is None
        else decode_graph(document.record).node(job.flow.step.removesuffix(COMPENSATION_SUFFIX))
    )
    cost = None if node is None or job.flow.step != node.name else node.work.cost
    return compute_needs(task, task.payload.by_name(*task.payload.decode(job.payload)), cost)


def _unknown_task_error(task: str) -> Error:
    return Error("UnknownTask", f"task: no worker knew {task!r} for 24 hours")


ListElements = list[msgspec.Raw]
StepIndex = tuple[str, int]


class InputReader:
    """Reads the inputs of the jobs of one advance. A list that several jobs need is read once."""

    def __init__(self, store: Store, flow: str) -> None:
        self._store, self._flow = store, flow
        self._lists: dict[str, ListElements | Error] = {}

    async def length(self, node: StepNode) -> int:
        """Returns the length of the list for which a step creates one job per element. If the value is not a
        list, returns 1, and that single job fails."""
        found = await self._list(node)
        return 1 if isinstance(found, Error) else len(found)

    async def read(
        self, graph: FlowGraph, jobs: Sequence[tuple[StepJob, TaskDefinition | None]]
    ) -> list[JobInput]:
        failed = await self._failed([step_job for step_job, _ in jobs if step_job.compensates])
        elements = await self._elements(graph, [step_job for step_job, _ in jobs])
        computed: dict[str, JsonMembers | Error] = {}
        inputs = []
        for step_job, task in jobs:
            node = step_job.node
            if step_job.compensates:
                inputs.append(JobInput(failed=failed.get(_step_index(step_job))))
                continue
            if node.name not in computed:
                is_needed = task is not None and depends_on_arguments(task, step_job.work)
                computed[node.name] = await self._results(graph, node) if is_needed else {}
            inputs.append(_make_input(elements.get(_step_index(step_job)), computed[node.name]))
        return inputs

    async def _failed(self, step_jobs: Sequence[StepJob]) -> dict[StepIndex, Job | None]:
        found: dict[StepIndex, Job | None] = {}
        for start in range(0, len(step_jobs), MAX_RESULTS_PER_READ):
            chunk = step_jobs[start : start + MAX_RESULTS_PER_READ]
            jobs = await self._store.get(
                [flow_job_id(self._flow, step_job.node.name, step_job.index) for step_job in chunk]
            )
            found.update(zip(map(_step_index, chunk), jobs, strict=True))
        return found

    async def _elements(
        self, graph: FlowGraph, step_jobs: Sequence[StepJob]
    ) -> dict[StepIndex, msgspec.Raw | Error]:
        found: dict[StepIndex, msgspec.Raw | Error] = {}
        mapped = {
            step_job.node.name: step_job.node for step_job in step_jobs if step_job.node.fan_out is not None
        }
        for name, node in mapped.items():
            mapped_jobs = [
                step_job for step_job in step_jobs if step_job.node.name == name and not step_job.compensates
            ]
            values = await self._of_indexes(graph, node, [step_job.index for step_job in mapped_jobs])
            found.update(zip(map(_step_index, mapped_jobs), values, strict=True))
        return found

    async def _of_indexes(
        self, graph: FlowGraph, node: StepNode, indexes: Sequence[int]
    ) -> Sequence[msgspec.Raw | Error]:
        assert node.fan_out is not None  # noqa: S101 - only mapped steps have elements
        if node.fan_out.step is None:
            return [node.fan_out.items[index] for index in indexes]
        over = graph.node(node.fan_out.step)
        if over is not None and over.fan_out is not None:
            try:
                return await load_results(self._store, self._flow, over.name, indexes)
            except ResultMissing as error:
                return [_make_missing_error(error)] * len(indexes)
        found = await self._list(node)
        return [found if isinstance(found, Error) else _pick_element(node, found, index) for index in indexes]

    async def _list(self, node: StepNode) -> ListElements | Error:
        assert node.fan_out is not None  # noqa: S101 - only mapped steps have a list
        assert node.fan_out.step is not None  # noqa: S101 - a literal list is not read
        step = node.fan_out.step
        if step not in self._lists:
            self._lists[step] = await self._read_list(node.name, step)
        return self._lists[step]

    async def _read_list(self, name: str, step: str) -> ListElements | Error:
        try:
            [result] = await load_results(self._store, self._flow, step, (0,))
            return msgspec.json.decode(result, type=ListElements | None) or []
        except ResultMissing as error:
            return _make_missing_error(error)
        except msgspec.ValidationError:
            sentence = (
                f"step {name!r} has a job for each element of what step {step!r} returned: that is no list"
            )
            return Error("InvalidPayload", sentence)

    async def _results(self, graph: FlowGraph, node: StepNode) -> JsonMembers | Error:
        try:
            return await load_argument_results(self._store, self._flow, find_reads(graph, node))
        except (ResultMissing, ResultsTooLarge) as error:
            return Error(type(error).__name__, str(error))


def _make_input(element: msgspec.Raw | Error | None, computed: JsonMembers | Error) -> JobInput:
    for value in (element, computed):
        if isinstance(value, Error):
            return JobInput(problem=value)
    assert not isinstance(element, Error)  # noqa: S101 - returned above
    assert not isinstance(computed, Error)  # noqa: S101 - returned above
    return JobInput(element=element, results=computed)


def _pick_element(node: StepNode, elements: ListElements, index: int) -> msgspec.Raw | Error:
    """Returns one element of a list, or an error if the list has no such element. The list may be shorter
    than before if its step was retried."""
    if index < len(elements):
        return elements[index]
    sentence = f"step {node.name!r} was to have a job for element {index} of a list that has {len(elements)}"
    return Error("ResultMissing", sentence)


def _step_index(step_job: StepJob) -> StepIndex:
    return step_job.node.name, step_job.index


def _make_missing_error(error: ResultMissing) -> Error:
    return Error("ResultMissing", str(error))
