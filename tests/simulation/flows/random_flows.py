"""Random flows, and the expected inputs of their jobs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from tidemill.core.flow_graph import FanOut, FlowGraph, JobTemplate, OnFailure, StepNode
from tidemill.core.jobs import COMPENSATION_SUFFIX, flow_job_id

Kind = Literal["quick", "slow", "flaky", "hopeless", "poison"]
KINDS: tuple[Kind, ...] = ("quick", "slow", "flaky", "hopeless", "poison")
WEIGHTS = (60, 10, 15, 12, 3)
QUEUE = "plain"
SHORT_SECONDS = 30.0
"""The retention of a flow that is pruned while other flows run."""


class Script(msgspec.Struct, frozen=True):
    """The behaviour of a job on its first run; after a retry it succeeds. It returns `items` items."""

    kind: Kind
    seconds: float
    items: int


def draw_flow(chance: random.Random) -> FlowGraph:
    nodes: list[StepNode] = []
    for number in range(chance.choice((1, 3, 5, 7))):
        parents = [node.name for node in chance.sample(nodes, min(len(nodes), chance.choice((0, 1, 1, 2))))]
        nodes.append(_node(chance, f"s{number}", parents))
    timeout = chance.choice((None, None, None, 20.0))
    return FlowGraph(
        nodes=tuple(nodes), timeout=timeout, keep=chance.choice((None, None, None, SHORT_SECONDS))
    )


def _node(chance: random.Random, name: str, parents: list[str]) -> StepNode:
    each = FanOut(argument="item", step=parents.pop()) if parents and chance.random() < 0.4 else None
    reads = {"given": parents.pop()} if parents and chance.random() < 0.7 else {}
    on_failure = chance.choice((OnFailure.FAIL, OnFailure.FAIL, *OnFailure))
    script = Script(chance.choices(KINDS, WEIGHTS)[0], chance.uniform(0.01, 1.0), chance.choice((0, 1, 2, 3)))
    task = chance.choice(("work", "work", "work", "rare"))
    return StepNode(
        name=name,
        work=JobTemplate(task=task, queue=QUEUE, priority=5),
        arguments={"script": msgspec.Raw(msgspec.json.encode(script))},
        reads=reads,
        after=tuple(parents),
        fan_out=each,
        on_failure=on_failure,
        compensation=JobTemplate(task="fix", queue=QUEUE, priority=5)
        if on_failure is OnFailure.COMPENSATE
        else None,
    )


def script_of(node: StepNode) -> Script:
    return msgspec.json.decode(node.arguments["script"], type=Script)


def expected_result(job: str, script: Script) -> list[str]:
    """Returns the result of a job. It depends only on the arguments, so handlers can check their inputs."""
    return [f"{job}:{number}" for number in range(script.items)]


def possible_results(flow: str, node: StepNode, index: int) -> Iterator[Any]:
    """Yields the values that the next step may get as the result of this job."""
    yield expected_result(flow_job_id(flow, node.name, index), script_of(node))
    if node.on_failure is OnFailure.CONTINUE:
        yield None
    if node.on_failure is OnFailure.COMPENSATE:
        yield [flow_job_id(flow, node.name + COMPENSATION_SUFFIX, index)]
