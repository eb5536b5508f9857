"""What each verb makes of a checkpoint: every field is kept that the verb does not change (K3, K4, K5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core.checkpoints import (
    NOBODY,
    Beginning,
    Begun,
    Checkpoint,
    Step,
    Try,
    begun,
    forgotten,
    kept,
)
from tidemill.core.outcomes import Answer

STEP = Step("pay", "digest")
NOW = 500.0
MINE, OTHER = Try(3, 7, 1), Try(2, 5, 4)
pending = st.builds(
    Checkpoint,
    step=st.just(STEP),
    paid=st.booleans(),
    begun=st.sampled_from([10.0, 20.0]),
    by=st.sampled_from([MINE, OTHER, NOBODY]),
    unknown=st.integers(0, 3),
)
stored = pending.map(lambda one: replace(one, kept=30.0, result=b"[1]"))


@given(pending, st.booleans())
def test_k5_a_result_leaves_everything_else_and_a_payment_is_never_forgotten(
    known: Checkpoint, paid: bool
) -> None:
    answer, after = kept(known, STEP, MINE, b"[2]", paid, NOW)
    assert answer is Answer.OK
    assert after == replace(known, paid=known.paid or paid, kept=NOW, result=b"[2]")


@given(st.booleans())
def test_k5_the_result_of_a_step_that_was_never_begun(paid: bool) -> None:
    answer, after = kept(None, STEP, MINE, b"[2]", paid, NOW)
    assert answer is Answer.OK
    assert after == Checkpoint(step=STEP, paid=paid, begun=NOW, by=MINE, kept=NOW, result=b"[2]", unknown=0)


@given(stored, st.booleans())
def test_k5_the_first_result_stays(known: Checkpoint, paid: bool) -> None:
    assert kept(known, STEP, MINE, b"[2]", paid, NOW) == (Answer.AGAIN, known)
    assert begun(known, STEP, MINE, "park", NOW) == (Beginning(Begun.KEPT, b"[1]"), known)
    assert forgotten(known, known.by) == known


@given(pending)
def test_k3_a_second_try_pays_again_or_leaves_the_step_to_a_person(known: Checkpoint) -> None:
    again = replace(known, paid=True, begun=NOW, by=MINE, unknown=known.unknown + 1)
    if known.by == MINE:
        expected = {name: (Beginning(Begun.FRESH, None, known.unknown), known) for name in ("retry", "park")}
    else:
        expected = {
            "retry": (Beginning(Begun.FRESH, None, known.unknown + 1), again),
            "park": (Beginning(Begun.UNKNOWN, None, known.unknown), known),
        }
    assert begun(known, STEP, MINE, "retry", NOW) == expected["retry"]
    assert begun(known, STEP, MINE, "park", NOW) == expected["park"]


def test_k3_the_first_try_marks_the_step() -> None:
    fresh = Checkpoint(step=STEP, paid=True, begun=NOW, by=MINE, kept=None, result=None, unknown=0)
    assert begun(None, STEP, MINE, "park", NOW) == (Beginning(Begun.FRESH, None, 0), fresh)


@given(pending)
def test_k4_a_call_that_was_not_made_takes_back_its_own_mark_only(known: Checkpoint) -> None:
    if known.by != MINE:
        assert forgotten(known, MINE) == known
    elif known.unknown:
        assert forgotten(known, MINE) == replace(known, by=NOBODY, unknown=known.unknown - 1)
    else:
        assert forgotten(known, MINE) is None
    assert forgotten(None, MINE) is None
