"""Makes the job of a step as a client would: with the key, the pools and the cost its task asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.contract.store import Store
from tidemill.core.claims import Claimed
from tidemill.core.courses import Kind, Made
from tidemill.core.flow_jobs import COMPENSATION, InFlow, Read, job_id
from tidemill.core.graph import Graph, Node, Work, decode
from tidemill.core.graph_next import Making
from tidemill.core.job import Error, Job, NewJob
from tidemill.core.needs import Need
from tidemill.errors import InvalidJob, InvalidPayload, PayloadTooLarge
from tidemill.flows.failure import Failure
from tidemill.flows.results import Members
from tidemill.tasks.definition import TaskDefinition


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What was read for it: the `element` it is for, the `results` its task wants to compute something from,
    the job that `failed` and is compensated, or why it cannot be made."""

    element: msgspec.Raw | None = None
    results: Members = {}
    failed: Job | None = None
    problem: Error | None = None


def made(flow: str, graph: Graph, making: Making, task: TaskDefinition | None, given: Given) -> Made:
    """A job that cannot be made is kept as a failed one: the flow goes on as if it had run and failed. It has
    the key it was given; one that its task would have computed is not known."""
    node, work = making.node, making.work
    step = node.name + COMPENSATION * making.compensates
    job = NewJob(
        id=job_id(flow, step, making.index),
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
        flow=InFlow(flow, step, making.index, reads_of(graph, node)),
    )
    try:
        job = msgspec.structs.replace(job, payload=_payload(flow, graph, making, task, given))
        if given.problem is not None or task is None:
            return Made(work.queue, job, given.problem or _unknown(work.task))
        return Made(work.queue, _by_task(job, work, task, given.results))
    except Exception as error:  # noqa: BLE001 - the task's own functions may raise anything
        return Made(work.queue, job, Error(type(error).__name__, f"step {node.name!r}: {error}"))


def reads_of(graph: Graph, node: Node) -> dict[str, Read]:
    """A step that was mapped is read as a list."""
    return {argument: Read(step, _length(graph, step)) for argument, step in node.reads.items()}


def computes(task: TaskDefinition, work: Work) -> bool:
    """Whether anything about its jobs depends on their arguments."""
    key = work.key is None and task.key is not None
    cost = work.cost is None and callable(task.cost)
    return key or cost or any(use.key is not None for use in task.pools)


def _length(graph: Graph, step: str) -> int | None:
    node = graph.node(step)
    return None if node is None or node.each is None else graph.of(step).count


def _payload(flow: str, graph: Graph, making: Making, task: TaskDefinition | None, given: Given) -> bytes:
    node = making.node
    if making.compensates:
        names = ("failure",) if task is None else task.payload.names
        if len(names) != 1:
            raise InvalidJob(f"the task {making.work.task!r} must take one argument, a Failure")
        return msgspec.json.encode({names[0]: _failure(flow, graph, making, given.failed)})
    members: dict[str, Any] = dict(node.arguments)
    if node.each is not None and given.element is not None:
        members[node.each.argument] = given.element
    return msgspec.json.encode(members)


def _failure(flow: str, graph: Graph, making: Making, failed: Job | None) -> Failure:
    node = making.node
    return Failure(
        flow=flow,
        key=graph.key,
        step=node.name,
        index=making.index,
        task=node.work.task,
        arguments={} if failed is None else msgspec.json.decode(failed.payload),
        error=_error(failed),
        attempts=0 if failed is None else failed.attempts,
    )


def _error(failed: Job | None) -> Error:
    if failed is None:
        return Error("JobGone", "the job was deleted")
    return failed.error or Error("Cancelled", failed.reason or "it was cancelled")


def _by_task(job: NewJob, work: Work, task: TaskDefinition, results: Members) -> NewJob:
    if len(job.payload) > task.max_bytes:
        raise PayloadTooLarge(
            f"the payload has {len(job.payload)} bytes, the task takes at most {task.max_bytes}"
        )
    arguments = _arguments(job, task, results) if computes(task, work) else {}
    key = task.key(**arguments) if work.key is None and task.key is not None else work.key
    if not isinstance(key, str | None):
        raise InvalidJob(f"key: the task's function must return str, returned {type(key).__name__}")
    return msgspec.structs.replace(
        job,
        key=key,
        needs=_needs(task, arguments, work),
        batching=None if task.batch is None else task.batch.together,
    )


def _arguments(job: NewJob, task: TaskDefinition, results: Members) -> Mapping[str, Any]:
    assert job.flow is not None  # noqa: S101 - made of one
    members = msgspec.json.decode(job.payload, type=Members)
    payload = msgspec.json.encode({**members, **results})
    try:
        return task.payload.by_name(*task.payload.decode(payload))
    except InvalidPayload as error:
        raise InvalidPayload(f"{error}{whence(job.flow)}") from None


def whence(flow: InFlow) -> str:
    """Which arguments another step is to blame for."""
    told = ", ".join(
        f"{argument} is what step {read.step!r} returned" for argument, read in flow.reads.items()
    )
    return f" ({told})" if told else ""


def _needs(task: TaskDefinition, arguments: Mapping[str, Any], work: Work) -> tuple[Need, ...]:
    if not task.pools:
        return ()
    from tidemill.tasks.costs import needs_of  # with all there is to pools: most tasks have none

    return needs_of(task, arguments, work.cost)


async def needs_at_last(store: Store, job: Claimed, task: TaskDefinition) -> tuple[Need, ...]:
    """Of a job that was not made with them: when it runs, its arguments are there."""
    from tidemill.tasks.costs import needs_of

    assert job.flow is not None  # noqa: S101 - made of one
    [course] = await store.courses(Kind.FLOW, [job.flow.id])
    node = None if course is None else decode(course.record).node(job.flow.step.removesuffix(COMPENSATION))
    cost = None if node is None or job.flow.step != node.name else node.work.cost
    return needs_of(task, task.payload.by_name(*task.payload.decode(job.payload)), cost)


def _unknown(task: str) -> Error:
    return Error("UnknownTask", f"task: no worker knew {task!r} for 24 hours")
