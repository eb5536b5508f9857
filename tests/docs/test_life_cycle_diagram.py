"""I4: the diagram of a job's life cycle has exactly the arrows of the transition table."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tests.docs.pages import DOCS
from tidemill.core.states import FINAL, PENDING, TRANSITIONS, State

GROUPS = {"pending": PENDING, "final": FINAL}
DRAWING = ET.parse(DOCS / "explanation/life-cycle.svg")  # noqa: S314 - our own file


def states(name: str) -> frozenset[State]:
    return GROUPS.get(name) or frozenset({State(name)})


def test_the_arrows_are_the_transition_table() -> None:
    drawn = [
        (verb, before.value, after.value)
        for arrow in DRAWING.iter()
        if arrow.get("class") == "arrow"
        for verb in arrow.attrib["data-verbs"].split()
        for before in states(arrow.attrib["data-from"])
        for after in states(arrow.attrib["data-to"])
    ]
    table = [
        (verb.value, before.value, after.value)
        for verb, moves in TRANSITIONS.items()
        for before, afters in moves.items()
        for after in afters
    ]
    assert sorted(drawn) == sorted(table)


def test_every_state_is_drawn() -> None:
    names = [text.text for text in DRAWING.iter() if text.get("class") == "name"]
    assert sorted(names, key=str) == sorted(state.value for state in State)


def test_every_verb_is_written_at_its_arrow() -> None:
    words = " ".join(text.text or "" for text in DRAWING.iter() if text.tag.endswith("text"))
    assert all(verb.value in words for verb in TRANSITIONS)
