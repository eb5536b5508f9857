"""Which column each step of a flow is drawn in, and in which order, so that few edges cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

SWEEPS = 8
"""There and back four times: more hardly finds fewer crossings."""
MOST_BENDS = 4000
"""Edges over many columns have a cell in each; beyond so many cells the longest go straight to their end."""


class Cells(msgspec.Struct, frozen=True):
    """What a drawing has: a cell for each step, by its place in the flow, and behind those one for each bend
    of an edge over several columns. `before` and `after` are the cells that each is joined to, in the columns
    beside its own; `columns` has all cells in their order. `routes` are the cells an edge goes through."""

    columns: list[list[int]]
    before: list[list[int]]
    after: list[list[int]]
    routes: dict[tuple[int, int], list[int]]


def arranged(parents: Sequence[Sequence[int]]) -> Cells:
    """`parents` are those of each step, by their places. It is begun twice, with bends below the steps and
    above them: a lane that begins on the wrong side of everything else does not find to the other."""
    cells = _joined(parents, _layers(parents))
    below, fewest = _swept(cells)
    if fewest:
        for column in cells.columns:
            column.sort(key=lambda cell: (cell < len(parents), cell))
        above, crossings = _swept(cells)
        below = above if crossings < fewest else below
    return msgspec.structs.replace(cells, columns=below)


def _swept(cells: Cells) -> tuple[list[list[int]], int]:
    """The best order that was met, and how many edges cross in it."""
    best, fewest = [column[:] for column in cells.columns], _crossings(cells)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        _sweep(cells, forward=sweep % 2 == 0)
        if (crossings := _crossings(cells)) < fewest:
            best, fewest = [column[:] for column in cells.columns], crossings
    return best, fewest


def _layers(parents: Sequence[Sequence[int]]) -> list[int]:
    """A step stands right of all it follows, as far to the left as that allows."""
    layers: list[int | None] = [None] * len(parents)
    for start in range(len(parents)):
        left = [start]
        while left:  # no recursion, because a chain may be long
            step = left[-1]
            unknown = [parent for parent in parents[step] if layers[parent] is None]
            if layers[step] is None and not unknown:
                layers[step] = 1 + max((layers[parent] or 0 for parent in parents[step]), default=-1)
            left += unknown if layers[step] is None else []
            if not unknown:
                left.pop()
    return [layer or 0 for layer in layers]


def _joined(parents: Sequence[Sequence[int]], layers: list[int]) -> Cells:
    """Edges of one step that go the same way share their bends."""
    cells = Cells([[] for _ in range(max(layers, default=-1) + 1)], [], [], {})
    for layer in layers:
        _new_cell(cells, layer)
    edges = sorted(
        ((source, target) for target, sources in enumerate(parents) for source in sources),
        key=lambda edge: (layers[edge[1]] - layers[edge[0]], edge),
    )
    bends: list[list[int]] = [[] for _ in layers]
    left = MOST_BENDS
    for source, target in edges:
        first, between = layers[source] + 1, layers[target] - layers[source] - 1
        missing = max(0, between - len(bends[source]))
        if missing > left:
            cells.routes[source, target] = [source, target]
            continue
        left -= missing
        for _ in range(missing):
            bends[source].append(_new_cell(cells, first + len(bends[source])))
        cells.routes[source, target] = [source, *bends[source][:between], target]
        _join(cells, cells.routes[source, target])
    return cells


def _new_cell(cells: Cells, layer: int) -> int:
    cells.before.append([])
    cells.after.append([])
    cells.columns[layer].append(len(cells.before) - 1)
    return len(cells.before) - 1


def _join(cells: Cells, route: Sequence[int]) -> None:
    for one, other in pairwise(route):
        if other not in cells.after[one]:
            cells.after[one].append(other)
            cells.before[other].append(one)


def _sweep(cells: Cells, *, forward: bool) -> None:
    """Each column in the order of what its cells are joined to in the one before; a cell that is joined to
    nothing there stays where it was."""
    columns, joined = (cells.columns, cells.before) if forward else (cells.columns[::-1], cells.after)
    for beside, column in pairwise(columns):
        places = _places(beside)
        own = _places(column)
        column.sort(key=lambda cell: (_middle(joined[cell], places, own[cell]), own[cell]))


def _places(column: Sequence[int]) -> dict[int, int]:
    return {cell: place for place, cell in enumerate(column)}


def _middle(joined: Sequence[int], places: Mapping[int, int], otherwise: int) -> float:
    return sum(places[cell] for cell in joined) / len(joined) if joined else otherwise


def _crossings(cells: Cells) -> int:
    """Of all edges between columns: how many pairs are in the other order at their ends."""
    found = 0
    for left, right in pairwise(cells.columns):
        places = _places(right)
        ends: list[int] = []
        for cell in left:
            for place in sorted(places[other] for other in cells.after[cell]):
                found += len(ends) - bisect_right(ends, place)
                insort(ends, place)
    return found
