"""The drawing of any flow is readable: boxes apart, edges forward, everything inside the picture."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill.core.flow_layout import (
    BOX_HEIGHT,
    EDGE_HEIGHT,
    MARGIN,
    ROW_GAP,
    FlowLayout,
    StepParents,
    layout_flow,
)


@st.composite
def flows(draws: st.DrawFn) -> StepParents:
    count = draws(st.integers(1, 30))
    steps = [
        (
            f"s{at}",
            tuple(f"s{parent}" for parent in sorted(draws(st.sets(st.integers(0, at - 1), max_size=4)))),
        )
        if at
        else ("s0", ())
        for at in range(count)
    ]
    return tuple(draws(st.permutations(steps)))


@settings(max_examples=40)
@given(flows())
def test_boxes_are_apart_and_inside_the_picture(steps: StepParents) -> None:
    drawing = layout_flow(steps)
    assert [box.name for box in drawing.boxes] == [name for name, _ in steps]
    for box in drawing.boxes:
        assert 0 < box.x < box.x + box.width < drawing.width
        assert 0 < box.y < box.y + box.height < drawing.height
    assert min(box.x for box in drawing.boxes) == drawing.width - max(
        box.x + box.width for box in drawing.boxes
    )
    columns: dict[float, list[float]] = {}
    for box in drawing.boxes:
        columns.setdefault(box.x, []).append(box.y)
    for tops in columns.values():
        for one, below in pairwise(sorted(tops)):
            assert below - one >= drawing.boxes[0].height + ROW_GAP - 0.2


@settings(max_examples=40)
@given(flows())
def test_every_edge_goes_forward_from_its_box_to_its_box(steps: StepParents) -> None:
    drawing = layout_flow(steps)
    boxes = {box.name: box for box in drawing.boxes}
    assert {(edge.source, edge.target) for edge in drawing.edges} == {
        (parent, name) for name, parents in steps for parent in parents
    }
    for edge in drawing.edges:
        source, target = boxes[edge.source], boxes[edge.target]
        assert edge.points[0] == (source.x + source.width, source.y + source.height / 2)
        assert edge.points[-1] == (target.x, target.y + target.height / 2)
        assert all(one[0] < other[0] for one, other in pairwise(edge.points))
        assert all(0 <= y <= drawing.height for _, y in edge.points)


@settings(max_examples=40)
@given(flows())
def test_no_edge_goes_through_a_box(steps: StepParents) -> None:
    """An edge that crosses a column is level there, and between two boxes."""
    drawing = layout_flow(steps)
    for edge in drawing.edges:
        for (left, y), (right, other) in list(pairwise(edge.points))[1::2]:
            assert y == other
            beside = [box for box in drawing.boxes if box.x == left]
            assert beside
            assert right == left + beside[0].width
            assert all(not box.y < y < box.y + box.height for box in beside)


@settings(max_examples=40)
@given(flows())
@example((("s0", ()), ("s1", ("s0",)), ("s2", ("s0", "s1"))))
def test_boxes_and_edges_of_a_column_do_not_overlap(steps: StepParents) -> None:
    """A box has its height, an edge its width, with the gap between any two and the margin around all."""
    drawing = layout_flow(steps)
    cells = {(box.x, box.y + BOX_HEIGHT / 2, BOX_HEIGHT / 2) for box in drawing.boxes}
    cells |= {(x, y, EDGE_HEIGHT / 2) for edge in drawing.edges for x, y in edge.points[1:-1:2]}
    columns: dict[float, list[tuple[float, float]]] = {}
    for x, middle, half in cells:
        columns.setdefault(x, []).append((middle, half))
    for column in columns.values():
        for (above, upper), (below, lower) in pairwise(sorted(column)):
            assert below - above >= upper + ROW_GAP + lower - 0.2
    assert min(middle - half for _, middle, half in cells) == pytest.approx(MARGIN, abs=0.1)
    assert max(middle + half for _, middle, half in cells) + MARGIN == pytest.approx(drawing.height, abs=0.1)
    assert min(x for x, _, _ in cells) == MARGIN


@settings(max_examples=40)
@given(flows())
def test_the_same_flow_is_drawn_the_same(steps: StepParents) -> None:
    assert layout_flow.__wrapped__(steps) == layout_flow(steps)


def test_edges_do_not_cross_without_need() -> None:
    """The steps are sent in an order in which all edges would cross."""
    many = 12
    first = tuple((f"a{at}", ()) for at in range(many))
    second = tuple((f"b{at}", (f"a{at}",)) for at in reversed(range(many)))
    assert _crossings(layout_flow((*first, *second))) == 0


def test_an_edge_goes_around_an_unrelated_chain() -> None:
    """An edge from the first of two chains to the end goes above the other chain, in either order of
    sending."""
    steps = (
        ("audio", ()),
        ("scenes", ()),
        ("lines", ("audio",)),
        ("checked", ("lines", "scenes")),
        ("cut", ("checked",)),
        ("published", ("cut", "audio")),
    )
    drawing = layout_flow(steps)
    crossing = {edge.points[1:3] for edge in drawing.edges if len(edge.points) > 2}
    assert len(crossing) == 2
    (_, audio), (_, scenes) = (
        next(edge.points[1] for edge in drawing.edges if edge.source == name and len(edge.points) > 2)
        for name in ("audio", "scenes")
    )
    boxes = {box.name: box.y for box in drawing.boxes}
    assert (audio < scenes) == (boxes["audio"] < boxes["scenes"])


def test_a_chain_is_a_straight_line() -> None:
    drawing = layout_flow(tuple((f"s{at}", (f"s{at - 1}",) if at else ()) for at in range(50)))
    assert len({box.y for box in drawing.boxes}) == 1


def test_a_step_that_follows_all_others_is_drawn() -> None:
    """There are more bends than cells for them; the flow is drawn anyway."""
    steps = tuple((f"s{at}", tuple(f"s{parent}" for parent in range(at))) for at in range(70))
    drawing = layout_flow(steps)
    assert len(drawing.edges) == 70 * 69 / 2
    assert all(one[0] < other[0] for edge in drawing.edges for one, other in pairwise(edge.points))


def _crossings(drawing: FlowLayout) -> int:
    lines = [(edge.points[0][1], edge.points[-1][1]) for edge in drawing.edges]
    return sum(one[0] < other[0] and one[1] > other[1] for one in lines for other in lines)
