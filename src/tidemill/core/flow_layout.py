"""The layout of a flow's drawing: positions of steps and edges."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec

ORDER_SWEEPS = 8
"""Four times forward and back: more sweeps rarely find fewer crossings."""
MAX_BENDS = 4000
"""The most cells for bends. An edge over several columns has one in each; beyond this number the longest
edges go straight."""


class LayoutCells(msgspec.Struct, frozen=True):
    """The cells of a drawing, as numbers. Each step has the cell with its index. Further cells are bends of
    edges.

    - `columns`: the cells of each column, from top to bottom.
    - `before`: for each cell, the connected cells in the column to the left.
    - `after`: for each cell, the connected cells in the column to the right.
    - `routes`: the cells that each edge passes, by the indexes of its two steps."""

    columns: list[list[int]]
    before: list[list[int]]
    after: list[list[int]]
    routes: dict[tuple[int, int], list[int]]


def arrange_cells(parents: Sequence[Sequence[int]]) -> LayoutCells:
    """Returns the cells of a drawing, ordered so that few edges cross. `parents` has the indexes of each
    step's parents."""
    cells = _join_layers(parents, _layers(parents))
    below, fewest = _best_order(cells)
    if fewest:
        for column in cells.columns:
            column.sort(key=lambda cell: (cell < len(parents), cell))
        above, crossings = _best_order(cells)
        below = above if crossings < fewest else below
    return msgspec.structs.replace(cells, columns=below)


def _best_order(cells: LayoutCells) -> tuple[list[list[int]], int]:
    """Returns the best order of the cells that was found, column by column, and its number of crossings."""
    best, fewest = [column[:] for column in cells.columns], _crossings(cells)
    for sweep in range(ORDER_SWEEPS):
        if not fewest:
            break
        _sweep(cells, forward=sweep % 2 == 0)
        if (crossings := _crossings(cells)) < fewest:
            best, fewest = [column[:] for column in cells.columns], crossings
    return best, fewest


def _layers(parents: Sequence[Sequence[int]]) -> list[int]:
    """Returns the column of each step: right of all its parents, as far left as possible."""
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


def _join_layers(parents: Sequence[Sequence[int]], layers: list[int]) -> LayoutCells:
    """Returns the cells of all columns, with their connections. `layers` has the column of each step. Edges
    that leave the same step share their bends."""
    cells = LayoutCells([[] for _ in range(max(layers, default=-1) + 1)], [], [], {})
    for layer in layers:
        _new_cell(cells, layer)
    edges = sorted(
        ((source, target) for target, sources in enumerate(parents) for source in sources),
        key=lambda edge: (layers[edge[1]] - layers[edge[0]], edge),
    )
    bends: list[list[int]] = [[] for _ in layers]
    left = MAX_BENDS
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


def _new_cell(cells: LayoutCells, layer: int) -> int:
    cells.before.append([])
    cells.after.append([])
    cells.columns[layer].append(len(cells.before) - 1)
    return len(cells.before) - 1


def _join(cells: LayoutCells, route: Sequence[int]) -> None:
    for cell, other in pairwise(route):
        if other not in cells.after[cell]:
            cells.after[cell].append(other)
            cells.before[other].append(cell)


def _sweep(cells: LayoutCells, *, forward: bool) -> None:
    """Sorts each column by the positions of the connected cells in the column that was sorted before it.
    `forward=True` goes from left to right, `forward=False` from right to left."""
    columns, joined = (cells.columns, cells.before) if forward else (cells.columns[::-1], cells.after)
    for beside, column in pairwise(columns):
        positions = _positions(beside)
        own = _positions(column)
        column.sort(key=lambda cell: (_mean_position(joined[cell], positions, own[cell]), own[cell]))


def _positions(column: Sequence[int]) -> dict[int, int]:
    return {cell: index for index, cell in enumerate(column)}


def _mean_position(joined: Sequence[int], positions: Mapping[int, int], otherwise: int) -> float:
    return sum(positions[cell] for cell in joined) / len(joined) if joined else otherwise


def _crossings(cells: LayoutCells) -> int:
    """Returns the number of crossings: pairs of edges whose order differs at their two ends."""
    found = 0
    for left, right in pairwise(cells.columns):
        positions = _positions(right)
        targets: list[int] = []
        for cell in left:
            for index in sorted(positions[other] for other in cells.after[cell]):
                found += len(targets) - bisect_right(targets, index)
                insort(targets, index)
    return found


BOX_WIDTH, BOX_HEIGHT = 198.0, 76.0
COLUMN_GAP, ROW_GAP = 54.0, 22.0
"""Between columns, and between the boxes of a column."""
EDGE_HEIGHT = 10.0
MARGIN = 14.0
LEVEL_PASSES = 6
MAX_CACHED_LAYOUTS = 64
BEND_WEIGHT = 8.0
"""How much stronger a bend is pulled to the level of its neighbours than a box."""

StepParents = tuple[tuple[str, tuple[str, ...]], ...]
"""Names of steps, each with the names of its parents."""
LayoutPoint = tuple[float, float]


class LayoutBox(msgspec.Struct, frozen=True):
    """The box of a step in the drawing. `x` and `y` are its upper left corner."""

    name: str
    x: float
    y: float
    width: float
    height: float


class LayoutEdge(msgspec.Struct, frozen=True):
    """An edge from the step `source` to the step `target`. The lines between `points` are a curve, a straight
    line, a curve, and so on."""

    source: str
    target: str
    points: tuple[LayoutPoint, ...]


class FlowLayout(msgspec.Struct, frozen=True):
    """The drawing of a flow: its boxes, its edges, and its width and height."""

    boxes: tuple[LayoutBox, ...]
    edges: tuple[LayoutEdge, ...]
    width: float
    height: float


@lru_cache(maxsize=MAX_CACHED_LAYOUTS)
def layout_flow(steps: StepParents) -> FlowLayout:
    """Returns the layout of a flow. `steps` has the name of each step with the names of its parents."""
    index = {name: at for at, (name, _) in enumerate(steps)}
    cells = arrange_cells([[index[parent] for parent in parents] for _, parents in steps])
    middles = _levels(cells, len(steps))
    column_of = {cell: at for at, column in enumerate(cells.columns) for cell in column}
    lefts = {cell: MARGIN + at * (BOX_WIDTH + COLUMN_GAP) for cell, at in column_of.items()}
    boxes = tuple(
        LayoutBox(name, lefts[at], middles[at] - BOX_HEIGHT / 2, BOX_WIDTH, BOX_HEIGHT)
        for at, (name, _) in enumerate(steps)
    )
    edges = tuple(
        LayoutEdge(steps[source][0], steps[target][0], _edge_points(route, lefts, middles))
        for (source, target), route in sorted(cells.routes.items())
    )
    return FlowLayout(
        boxes,
        edges,
        width=MARGIN * 2 + len(cells.columns) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP,
        height=max(middle + _half_height(cell, len(steps)) for cell, middle in middles.items()) + MARGIN,
    )


def _edge_points(
    route: Sequence[int], lefts: Mapping[int, float], middles: Mapping[int, float]
) -> tuple[LayoutPoint, ...]:
    points = [(lefts[route[0]] + BOX_WIDTH, middles[route[0]])]
    for cell in route[1:-1]:
        points += [(lefts[cell], middles[cell]), (lefts[cell] + BOX_WIDTH, middles[cell])]
    return (*points, (lefts[route[-1]], middles[route[-1]]))


def _levels(cells: LayoutCells, boxes: int) -> dict[int, float]:
    """Returns the vertical middle of each cell, close to the connected cells. `boxes` is the number of
    steps."""
    levels: dict[int, float] = {}
    for column in cells.columns:
        _place_column(column, dict.fromkeys(column, 0.0), boxes, levels)
    for turn in range(LEVEL_PASSES):
        forward = turn % 2 == 0
        joined = cells.before if forward else cells.after
        for column in cells.columns if forward else reversed(cells.columns):
            _place_column(
                column, {cell: _mean(joined[cell], levels, levels[cell]) for cell in column}, boxes, levels
            )
    top = min((level - _half_height(cell, boxes) for cell, level in levels.items()), default=0.0)
    return {cell: round(level - top + MARGIN, 1) for cell, level in levels.items()}


def _mean(joined: Sequence[int], levels: Mapping[int, float], otherwise: float) -> float:
    return sum(levels[cell] for cell in joined) / len(joined) if joined else otherwise


def _half_height(cell: int, boxes: int) -> float:
    return BOX_HEIGHT / 2 if cell < boxes else EDGE_HEIGHT / 2


def _place_column(
    column: Sequence[int], targets: Mapping[int, float], boxes: int, levels: dict[int, float]
) -> None:
    """Sets the vertical middle of each cell of a column in `levels`, as near as possible to its value in
    `targets`. The cells keep their order and do not overlap. `boxes` is the number of steps."""
    offsets, offset = [], 0.0
    for above, cell in zip([None, *column], column, strict=False):
        if above is not None:
            offset += _half_height(above, boxes) + ROW_GAP + _half_height(cell, boxes)
        offsets.append(offset)
    groups: list[tuple[float, float, int]] = []  # position, weight, number of cells
    for cell, offset in zip(column, offsets, strict=True):
        at, weight, cells = targets[cell] - offset, 1.0 if cell < boxes else BEND_WEIGHT, 1
        while groups and groups[-1][0] >= at:
            other, heavy, more = groups.pop()
            at = (at * weight + other * heavy) / (weight + heavy)
            weight, cells = weight + heavy, cells + more
        groups.append((at, weight, cells))
    moved = [at for at, _, cells in groups for _ in range(cells)]
    for cell, at, offset in zip(column, moved, offsets, strict=True):
        levels[cell] = at + offset
