"""Which steps of a flow may begin, and which jobs are to be made."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from tidemill.core.graph import Going, Graph, Node, OnFailure, Work
from tidemill.core.index_sets import IndexSet


class Making(msgspec.Struct, frozen=True):
    """A job to be made. One that `compensates` runs in the place of the one with that index."""

    node: Node
    index: int
    compensates: bool = False

    @property
    def work(self) -> Work:
        return self.node.compensation or self.node.work if self.compensates else self.node.work


def settled(node: Node, going: Going) -> IndexSet:
    """Those that nobody has to wait for any more."""
    if not going.failed:
        return going.done
    if node.on_failure is OnFailure.CONTINUE:
        return going.done | going.failed
    return going.done | (going.failed & going.saved)


def broken(node: Node, going: Going) -> IndexSet:
    """Those because of which the flow fails."""
    match node.on_failure:
        case OnFailure.FAIL:
            return going.failed
        case OnFailure.CONTINUE:
            return IndexSet()
        case OnFailure.COMPENSATE:
            return going.failed & going.lost


def over(graph: Graph) -> frozenset[str]:
    """The steps that are done, as far as those after them are concerned."""
    return frozenset(
        node.name
        for node in graph.nodes
        if (going := graph.going.get(node.name)) is not None and is_settled(node, going)
    )


def is_settled(node: Node, going: Going) -> bool:
    return len(settled(node, going)) == going.count


def is_over(graph: Graph, step: str) -> bool:
    node = graph.node(step)
    return node is not None and is_settled(node, graph.of(step))


def is_failing(graph: Graph) -> bool:
    if not any(going.failed for going in graph.going.values()):  # asked many times, and seldom otherwise
        return False
    return any(broken(node, graph.of(node.name)) for node in graph.nodes)


def is_live(graph: Graph) -> bool:
    return any(going.live or going.compensating for going in graph.going.values())


def begun(graph: Graph, lengths: Mapping[str, int]) -> Graph:
    """Steps whose parents are all done begin. `lengths` are of the lists that steps are mapped over, by the
    step that is mapped; one whose is not known yet does not. A step without jobs is over as it begins."""
    while _may_go_on(graph):
        counts = {node.name: _count(graph, node, lengths) for node in _beginning(graph)}
        news = {name: Going(count=count) for name, count in counts.items() if count is not None}
        if not news:
            break
        graph = graph.going_on(news)
    return graph


def unmeasured(graph: Graph) -> list[Node]:
    """Steps that could begin if it were known how long the list is that their parent returned."""
    if not _may_go_on(graph):
        return []
    return [node for node in _beginning(graph) if _count(graph, node, {}) is None]


def making(graph: Graph, most: int, tasks: Container[str] | None = None) -> list[Making]:
    """What is to be made next, and no more than that at once; with `tasks`, only of these."""
    if not _may_go_on(graph):
        return []
    return list(islice((job for job in _making(graph) if tasks is None or job.work.task in tasks), most))


def made(graph: Graph, jobs: Iterable[Making]) -> Graph:
    changes: dict[str, Going] = {}
    for job in jobs:
        name = job.node.name
        going = changes.get(name) or graph.of(name)
        changes[name] = (
            replace(going, replaced=going.replaced | IndexSet.of([job.index]))
            if job.compensates
            else replace(going, made=job.index + 1)
        )
    return _without_items(graph.going_on(changes)) if changes else graph


def _without_items(graph: Graph) -> Graph:
    """Elements that are in jobs are kept there: the record is written anew with each advance."""
    return replace(graph, nodes=tuple(_without_made(node, graph.of(node.name)) for node in graph.nodes))


def _without_made(node: Node, going: Going) -> Node:
    if node.each is None or not node.each.items or going.made != going.count:
        return node
    return replace(node, each=replace(node.each, items=()))


def _may_go_on(graph: Graph) -> bool:
    return graph.stopped is None and not is_failing(graph)


def _beginning(graph: Graph) -> Iterator[Node]:
    behind = over(graph)
    for node in graph.nodes:
        if graph.of(node.name).count is None and node.parents <= behind:
            yield node


def _count(graph: Graph, node: Node, lengths: Mapping[str, int]) -> int | None:
    if node.each is None:
        return 1
    if node.each.step is None:
        return len(node.each.items)
    if (over := graph.node(node.each.step)) is not None and over.each is not None:
        return graph.of(over.name).count
    return lengths.get(node.name)


def _making(graph: Graph) -> Iterator[Making]:
    """A step that has begun goes no further while one before it was brought back."""
    behind = over(graph)
    for node in graph.nodes:
        going = graph.of(node.name)
        if node.on_failure is OnFailure.COMPENSATE:
            for index in going.failed - going.replaced:
                yield Making(node, index, compensates=True)
        for index in range(going.made, going.count or 0) if node.parents <= behind else ():
            yield Making(node, index)
