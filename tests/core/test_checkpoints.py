"""Each verb keeps all fields of a checkpoint that it does not change (K3, K4, K5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core.checkpoints import (
    NO_ATTEMPT,
    Checkpoint,
    StepAttempt,
    StepKey,
    StepStart,
    StepVerdict,
    forget_step,
    keep_result,
    start_step,
)
from tidemill.core.outcomes import WriteAnswer

STEP = StepKey("pay", "digest")
NOW = 500.0
MINE, OTHER = StepAttempt(3, 7, 1), StepAttempt(2, 5, 4)
pending = st.builds(
    Checkpoint,
    step=st.just(STEP),
    paid=st.booleans(),
    begun=st.sampled_from([10.0, 20.0]),
    by=st.sampled_from([MINE, OTHER, NO_ATTEMPT]),
    unknown=st.integers(0, 3),
)
stored = pending.map(lambda one: replace(one, kept=30.0, result=b"[1]"))


@given(pending, st.booleans())
def test_k5_a_result_keeps_the_other_fields_and_the_paid_mark(known: Checkpoint, paid: bool) -> None:
    answer, after = keep_result(known, STEP, MINE, b"[2]", paid, NOW)
    assert answer is WriteAnswer.OK
    assert after == replace(known, paid=known.paid or paid, kept=NOW, result=b"[2]")


@given(st.booleans())
def test_k5_a_result_without_a_begin_is_stored(paid: bool) -> None:
    answer, after = keep_result(None, STEP, MINE, b"[2]", paid, NOW)
    assert answer is WriteAnswer.OK
    assert after == Checkpoint(step=STEP, paid=paid, begun=NOW, by=MINE, kept=NOW, result=b"[2]", unknown=0)


@given(stored, st.booleans())
def test_k5_the_first_result_wins(known: Checkpoint, paid: bool) -> None:
    assert keep_result(known, STEP, MINE, b"[2]", paid, NOW) == (WriteAnswer.AGAIN, known)
    assert start_step(known, STEP, MINE, "park", NOW) == (StepStart(StepVerdict.KEPT, b"[1]"), known)
    assert forget_step(known, known.by) == known


@given(pending)
def test_k3_a_second_call_pays_again_or_parks_the_step(known: Checkpoint) -> None:
    again = replace(known, paid=True, begun=NOW, by=MINE, unknown=known.unknown + 1)
    if known.by == MINE:
        expected = {
            name: (StepStart(StepVerdict.FRESH, None, known.unknown), known) for name in ("retry", "park")
        }
    else:
        expected = {
            "retry": (StepStart(StepVerdict.FRESH, None, known.unknown + 1), again),
            "park": (StepStart(StepVerdict.UNKNOWN, None, known.unknown), known),
        }
    assert start_step(known, STEP, MINE, "retry", NOW) == expected["retry"]
    assert start_step(known, STEP, MINE, "park", NOW) == expected["park"]


def test_k3_the_first_call_marks_the_step() -> None:
    fresh = Checkpoint(step=STEP, paid=True, begun=NOW, by=MINE, kept=None, result=None, unknown=0)
    assert start_step(None, STEP, MINE, "park", NOW) == (StepStart(StepVerdict.FRESH, None, 0), fresh)


@given(pending)
def test_k4_an_unpaid_call_removes_only_its_own_mark(known: Checkpoint) -> None:
    if known.by != MINE:
        assert forget_step(known, MINE) == known
    elif known.unknown:
        assert forget_step(known, MINE) == replace(known, by=NO_ATTEMPT, unknown=known.unknown - 1)
    else:
        assert forget_step(known, MINE) is None
    assert forget_step(None, MINE) is None
