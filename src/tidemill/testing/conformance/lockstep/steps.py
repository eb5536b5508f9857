"""Steps are begun, forgotten and kept, by holders and by those who no longer are."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tidemill.contract.store import Store
from tidemill.core.checkpoints import Step, Try
from tidemill.core.claims import Claimed
from tidemill.testing.conformance.lockstep.pair import Pair

STEPS = st.sampled_from((Step("ask", "1"), Step("speak", "1")))
VERBS = ("begin", "begin and park", "forget", "keep", "keep free")
SAID = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(1, 2)), min_size=1, max_size=3)
"""What one holder says of a step, and of which of its calls."""


class Steps(Pair):
    @precondition(lambda self: self.claims)
    @rule(data=st.data(), step=STEPS, said=SAID)
    def say_of_a_step(self, data: st.DataObject, step: Step, said: list[tuple[str, int]]) -> None:
        """One rule for all verbs, and several at once: every rule more makes the others rarer."""
        held: Claimed = data.draw(st.sampled_from(self.claims))
        for verb, number in said:
            self.say(held, step, verb, number)
        self.both(lambda store: store.kept_step(held.id, step))

    def say(self, held: Claimed, step: Step, verb: str, number: int) -> None:
        self.both(lambda store: _say(store, held, step, verb, number))
        self.both(lambda store: store.checkpoints(held.id))


async def _say(store: Store, held: Claimed, step: Step, verb: str, number: int) -> object:
    by = Try(held.fence, held.claim, number)
    if verb == "forget":
        await store.forget_step(held.id, by, step)
        return None
    if verb.startswith("begin"):
        return await store.begin_step(held.id, by, step, "retry" if verb == "begin" else "park")
    result = b'"%d \xe6\x85\xa2"' % number
    return await store.keep_step(held.id, by, step, result, paid=verb == "keep")
