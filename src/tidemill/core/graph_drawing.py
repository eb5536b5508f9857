"""A flow's steps as boxes in columns, with curves from each to those that follow it.

Everything goes from left to right. Steps of a column never overlap, an edge over several columns has a lane
of its own between them, and the same flow is always drawn the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from tidemill.core.graph_layers import Cells, arranged

WIDTH, HEIGHT = 198.0, 76.0
ACROSS, DOWN = 54.0, 22.0
"""Between columns, and between the boxes of one."""
LANE = 10.0
MARGIN = 14.0
PASSES = 6
DRAWINGS_KEPT = 64
STRAIGHT = 8.0
"""How much more an edge's bend wants to be level with its neighbours than a box does."""

Steps = tuple[tuple[str, tuple[str, ...]], ...]
"""Names, each with those of the steps it follows."""
Point = tuple[float, float]


class Box(msgspec.Struct, frozen=True):
    name: str
    x: float
    y: float
    width: float
    height: float


class Edge(msgspec.Struct, frozen=True):
    """A curve leads from the first of the `points` to the second, a straight line on to the third, from there
    a curve again."""

    source: str
    target: str
    points: tuple[Point, ...]


class Drawing(msgspec.Struct, frozen=True):
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float


@lru_cache(maxsize=DRAWINGS_KEPT)
def draw(steps: Steps) -> Drawing:
    """Of a graph without circles. Kept: while a flow runs its drawing is asked for every second."""
    place = {name: at for at, (name, _) in enumerate(steps)}
    cells = arranged([[place[parent] for parent in parents] for _, parents in steps])
    middles = _levels(cells, len(steps))
    column_of = {cell: at for at, column in enumerate(cells.columns) for cell in column}
    lefts = {cell: MARGIN + at * (WIDTH + ACROSS) for cell, at in column_of.items()}
    boxes = tuple(
        Box(name, lefts[at], middles[at] - HEIGHT / 2, WIDTH, HEIGHT) for at, (name, _) in enumerate(steps)
    )
    edges = tuple(
        Edge(steps[source][0], steps[target][0], _points(route, lefts, middles))
        for (source, target), route in sorted(cells.routes.items())
    )
    return Drawing(
        boxes,
        edges,
        width=MARGIN * 2 + len(cells.columns) * (WIDTH + ACROSS) - ACROSS,
        height=max(middle + _half(cell, len(steps)) for cell, middle in middles.items()) + MARGIN,
    )


def _points(
    route: Sequence[int], lefts: Mapping[int, float], middles: Mapping[int, float]
) -> tuple[Point, ...]:
    ends = [(lefts[route[0]] + WIDTH, middles[route[0]])]
    for cell in route[1:-1]:
        ends += [(lefts[cell], middles[cell]), (lefts[cell] + WIDTH, middles[cell])]
    return (*ends, (lefts[route[-1]], middles[route[-1]]))


def _levels(cells: Cells, boxes: int) -> dict[int, float]:
    """The middle of each cell: columns are placed one after the other, there and back, each cell as level
    with what it is joined to as its neighbours allow."""
    levels: dict[int, float] = {}
    for column in cells.columns:
        _place(column, dict.fromkeys(column, 0.0), boxes, levels)
    for turn in range(PASSES):
        forward = turn % 2 == 0
        joined = cells.before if forward else cells.after
        for column in cells.columns if forward else reversed(cells.columns):
            _place(
                column, {cell: _mean(joined[cell], levels, levels[cell]) for cell in column}, boxes, levels
            )
    top = min((level - _half(cell, boxes) for cell, level in levels.items()), default=0.0)
    return {cell: round(level - top + MARGIN, 1) for cell, level in levels.items()}


def _mean(joined: Sequence[int], levels: Mapping[int, float], otherwise: float) -> float:
    return sum(levels[cell] for cell in joined) / len(joined) if joined else otherwise


def _half(cell: int, boxes: int) -> float:
    return HEIGHT / 2 if cell < boxes else LANE / 2


def _place(column: Sequence[int], wanted: Mapping[int, float], boxes: int, levels: dict[int, float]) -> None:
    """In their order, apart from each other, and together as near as can be to where each is `wanted`: cells
    that would push each other move as one, to the mean of what they want."""
    offsets, offset = [], 0.0
    for above, cell in zip([None, *column], column, strict=False):
        if above is not None:
            offset += _half(above, boxes) + DOWN + _half(cell, boxes)
        offsets.append(offset)
    groups: list[tuple[float, float, int]] = []  # where it is, its weight, how many cells
    for cell, offset in zip(column, offsets, strict=True):
        at, weight, many = wanted[cell] - offset, 1.0 if cell < boxes else STRAIGHT, 1
        while groups and groups[-1][0] >= at:
            other, heavy, more = groups.pop()
            at = (at * weight + other * heavy) / (weight + heavy)
            weight, many = weight + heavy, many + more
        groups.append((at, weight, many))
    moved = [at for at, _, many in groups for _ in range(many)]
    for cell, at, offset in zip(column, moved, offsets, strict=True):
        levels[cell] = at + offset
