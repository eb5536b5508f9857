"""Reads from the store what jobs that are to be made are made of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemill.contract.store import Store
from tidemill.core.flow_jobs import job_id
from tidemill.core.graph import Graph, Node
from tidemill.core.graph_next import Making
from tidemill.core.job import Error, Job
from tidemill.flows.making import Given, computes, reads_of
from tidemill.flows.results import AT_ONCE, Members, ResultGone, ResultsTooLarge, results, results_of
from tidemill.tasks.definition import TaskDefinition

Elements = list[msgspec.Raw]
Place = tuple[str, int]


class Gatherer:
    """For one advance of one flow: what several jobs need is read once."""

    def __init__(self, store: Store, flow: str) -> None:
        self._store, self._flow = store, flow
        self._lists: dict[str, Elements | Error] = {}

    async def length(self, node: Node) -> int:
        """Of the list a step is mapped over. What is none becomes one job, which fails with the reason."""
        found = await self._list(node)
        return 1 if isinstance(found, Error) else len(found)

    async def gather(self, graph: Graph, jobs: Sequence[tuple[Making, TaskDefinition | None]]) -> list[Given]:
        failed = await self._failed([making for making, _ in jobs if making.compensates])
        elements = await self._elements(graph, [making for making, _ in jobs])
        computed: dict[str, Members | Error] = {}
        given = []
        for making, task in jobs:
            node = making.node
            if making.compensates:
                given.append(Given(failed=failed.get(_place(making))))
                continue
            if node.name not in computed:
                wanted = task is not None and computes(task, making.work)
                computed[node.name] = await self._results(graph, node) if wanted else {}
            given.append(_given(elements.get(_place(making)), computed[node.name]))
        return given

    async def _failed(self, makings: Sequence[Making]) -> dict[Place, Job | None]:
        found: dict[Place, Job | None] = {}
        for start in range(0, len(makings), AT_ONCE):
            some = makings[start : start + AT_ONCE]
            jobs = await self._store.get([job_id(self._flow, one.node.name, one.index) for one in some])
            found.update(zip(map(_place, some), jobs, strict=True))
        return found

    async def _elements(self, graph: Graph, makings: Sequence[Making]) -> dict[Place, msgspec.Raw | Error]:
        found: dict[Place, msgspec.Raw | Error] = {}
        mapped = {making.node.name: making.node for making in makings if making.node.each is not None}
        for name, node in mapped.items():
            its = [one for one in makings if one.node.name == name and not one.compensates]
            values = await self._of_indexes(graph, node, [one.index for one in its])
            found.update(zip(map(_place, its), values, strict=True))
        return found

    async def _of_indexes(
        self, graph: Graph, node: Node, indexes: Sequence[int]
    ) -> Sequence[msgspec.Raw | Error]:
        assert node.each is not None  # noqa: S101 - only mapped ones have elements
        if node.each.step is None:
            return [node.each.items[index] for index in indexes]
        over = graph.node(node.each.step)
        if over is not None and over.each is not None:
            try:
                return await results(self._store, self._flow, over.name, indexes)
            except ResultGone as error:
                return [_gone(error)] * len(indexes)
        found = await self._list(node)
        return [found if isinstance(found, Error) else _element(node, found, index) for index in indexes]

    async def _list(self, node: Node) -> Elements | Error:
        assert node.each is not None  # noqa: S101 - only mapped ones have a list
        assert node.each.step is not None  # noqa: S101 - or its length is known
        step = node.each.step
        if step not in self._lists:
            self._lists[step] = await self._read_list(node.name, step)
        return self._lists[step]

    async def _read_list(self, name: str, step: str) -> Elements | Error:
        try:
            [result] = await results(self._store, self._flow, step, (0,))
            return msgspec.json.decode(result, type=Elements | None) or []
        except ResultGone as error:
            return _gone(error)
        except msgspec.ValidationError:
            sentence = (
                f"step {name!r} has a job for each element of what step {step!r} returned: that is no list"
            )
            return Error("InvalidPayload", sentence)

    async def _results(self, graph: Graph, node: Node) -> Members | Error:
        try:
            return await results_of(self._store, self._flow, reads_of(graph, node))
        except (ResultGone, ResultsTooLarge) as error:
            return Error(type(error).__name__, str(error))


def _given(element: msgspec.Raw | Error | None, computed: Members | Error) -> Given:
    for one in (element, computed):
        if isinstance(one, Error):
            return Given(problem=one)
    assert not isinstance(element, Error)  # noqa: S101 - looked at above
    assert not isinstance(computed, Error)  # noqa: S101 - looked at above
    return Given(element=element, results=computed)


def _element(node: Node, elements: Elements, index: int) -> msgspec.Raw | Error:
    """A step that somebody ran again may have returned less than the first time."""
    if index < len(elements):
        return elements[index]
    sentence = f"step {node.name!r} was to have a job for element {index} of a list that has {len(elements)}"
    return Error("ResultGone", sentence)


def _place(making: Making) -> Place:
    return making.node.name, making.index


def _gone(error: ResultGone) -> Error:
    return Error("ResultGone", str(error))
