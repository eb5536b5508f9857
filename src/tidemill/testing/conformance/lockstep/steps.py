"""Steps are begun, forgotten and kept, by holders and by those who no longer are."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tidemill.core.checkpoints import OnUnknown, Step, Try
from tidemill.core.claims import Claimed
from tidemill.testing.conformance.lockstep.pair import Pair

STEPS = st.sampled_from((Step("ask", "1"), Step("ask", "2"), Step("speak", "1")))
NUMBERS = st.integers(1, 3)


class Steps(Pair):
    @precondition(lambda self: self.claims)
    @rule(data=st.data(), step=STEPS, number=NUMBERS, on_unknown=st.sampled_from(("retry", "park")))
    def begin_step(self, data: st.DataObject, step: Step, number: int, on_unknown: OnUnknown) -> None:
        job, by = self.a_try(data, number)
        self.both(lambda store: store.begin_step(job, by, step, on_unknown))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), step=STEPS, number=NUMBERS)
    def forget_step(self, data: st.DataObject, step: Step, number: int) -> None:
        job, by = self.a_try(data, number)
        self.both(lambda store: store.forget_step(job, by, step))

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        step=STEPS,
        number=NUMBERS,
        result=st.sampled_from((b"null", b"1", b'"\xe6\x85\xa2"')),
        paid=st.booleans(),
    )
    def keep_step(self, data: st.DataObject, step: Step, number: int, result: bytes, paid: bool) -> None:
        job, by = self.a_try(data, number)
        self.both(lambda store: store.keep_step(job, by, step, result, paid=paid))
        self.both(lambda store: store.kept_step(job, step))
        self.both(lambda store: store.checkpoints(job))

    def a_try(self, data: st.DataObject, number: int) -> tuple[str, Try]:
        held: Claimed = data.draw(st.sampled_from(self.claims))
        return held.id, Try(held.fence, held.claim, number)
