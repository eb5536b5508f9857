"""Random flows, and what each of their jobs is to be given."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from tidemill.core.flow_jobs import COMPENSATION, job_id
from tidemill.core.graph import Each, Graph, Node, OnFailure, Work

Kind = Literal["quick", "slow", "flaky", "hopeless", "poison"]
KINDS: tuple[Kind, ...] = ("quick", "slow", "flaky", "hopeless", "poison")
WEIGHTS = (60, 10, 15, 12, 3)
QUEUE = "plain"
SHORT = 30.0
"""As long as a flow is kept that goes while others are under way."""


class Script(msgspec.Struct, frozen=True):
    """What a job does the first time; brought back by a retry it does well. It returns so many `items`."""

    kind: Kind
    seconds: float
    items: int


def draw(chance: random.Random) -> Graph:
    nodes: list[Node] = []
    for number in range(chance.choice((1, 3, 5, 7))):
        parents = [node.name for node in chance.sample(nodes, min(len(nodes), chance.choice((0, 1, 1, 2))))]
        nodes.append(_node(chance, f"s{number}", parents))
    timeout = chance.choice((None, None, None, 20.0))
    return Graph(nodes=tuple(nodes), timeout=timeout, keep=chance.choice((None, None, None, SHORT)))


def _node(chance: random.Random, name: str, parents: list[str]) -> Node:
    each = Each(argument="item", step=parents.pop()) if parents and chance.random() < 0.4 else None
    reads = {"given": parents.pop()} if parents and chance.random() < 0.7 else {}
    on_failure = chance.choice((OnFailure.FAIL, OnFailure.FAIL, *OnFailure))
    script = Script(chance.choices(KINDS, WEIGHTS)[0], chance.uniform(0.01, 1.0), chance.choice((0, 1, 2, 3)))
    task = chance.choice(("work", "work", "work", "rare"))
    return Node(
        name=name,
        work=Work(task=task, queue=QUEUE, priority=5),
        arguments={"script": msgspec.Raw(msgspec.json.encode(script))},
        reads=reads,
        after=tuple(parents),
        each=each,
        on_failure=on_failure,
        compensation=Work(task="fix", queue=QUEUE, priority=5)
        if on_failure is OnFailure.COMPENSATE
        else None,
    )


def script_of(node: Node) -> Script:
    return msgspec.json.decode(node.arguments["script"], type=Script)


def returned(job: str, script: Script) -> list[str]:
    """Everybody can compute it: so everybody can tell whether what it was given is right."""
    return [f"{job}:{number}" for number in range(script.items)]


def possible(flow: str, node: Node, index: int) -> Iterator[Any]:
    """What a job of a step may read as."""
    yield returned(job_id(flow, node.name, index), script_of(node))
    if node.on_failure is OnFailure.CONTINUE:
        yield None
    if node.on_failure is OnFailure.COMPENSATE:
        yield [job_id(flow, node.name + COMPENSATION, index)]
