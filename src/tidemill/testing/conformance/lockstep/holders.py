"""Jobs are claimed, and their holders speak, the late ones too."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tidemill.core.claims import Claimed, ClaimRequest, Claims, Heartbeat, Held, Said, Settlement, Share
from tidemill.core.outcomes import Outcome
from tidemill.core.spending import Spent
from tidemill.core.states import State
from tidemill.testing.conformance import metering
from tidemill.testing.conformance import strategies as some
from tidemill.testing.conformance.lockstep.pair import Pair


class Holders(Pair):
    @rule(worker=some.workers, shares=some.shares, limit=some.limits, lease=st.sampled_from((10.0, 30.0)))
    def claim(self, worker: str, shares: list[tuple[str, int]], limit: int, lease: float) -> None:
        request = self.request(worker, shares=shares, limit=limit, lease=lease)
        self.claimed(self.both(lambda store: store.claim(request)))

    @rule(worker=some.workers)
    def claim_much(self, worker: str) -> None:
        self.claim(worker, [("a", 5), ("b", 5)], 10, 30.0)

    @rule(worker=some.workers, named=st.lists(some.known_ids, max_size=6), limit=some.limits)
    def claim_by_ids(self, worker: str, named: list[str], limit: int) -> None:
        request = self.request(worker, limit=limit, named=tuple(named))
        self.claimed(self.both(lambda store: store.claim(request)))

    @rule(worker=some.workers, back=st.integers(1, 2))
    def claim_again(self, worker: str, back: int) -> None:
        if len(self.requests[worker]) >= back:
            request = self.requests[worker][-back]
            self.claimed(self.both(lambda store: store.claim(request)))

    def request(
        self,
        worker: str,
        *,
        limit: int,
        shares: list[tuple[str, int]] | None = None,
        lease: float = 30.0,
        named: tuple[str, ...] | None = None,
    ) -> ClaimRequest:
        self.numbers[worker] += 1
        request = ClaimRequest(
            worker=worker,
            number=self.numbers[worker],
            shares=tuple(Share(queue, jobs) for queue, jobs in shares or ()),
            limit=limit,
            lease=lease,
            ids=named,
        )
        self.requests[worker].append(request)
        return request

    def claimed(self, claims: Claims | str) -> None:
        if isinstance(claims, Claims):
            self.claims.extend(claims.jobs)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), worker=st.one_of(st.none(), some.workers), limit=some.limits)
    def settle(self, data: st.DataObject, worker: str | None, limit: int) -> None:
        charged = st.one_of(st.none(), some.outcomes)
        told = st.tuples(self.some_claims(), some.outcomes, metering.spents, charged)
        items = [_settlement(*each) for each in data.draw(st.lists(told, min_size=1, max_size=4))]
        shares = [(queue, limit) for queue in some.QUEUES]
        request = None if worker is None else self.request(worker, shares=shares, limit=limit)
        settled = self.both(lambda store: store.settle(items, request))
        if not isinstance(settled, str) and settled.claims is not None:
            self.claimed(settled.claims)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def settle_only(self, data: st.DataObject) -> None:
        self.settle(data, None, 0)

    @rule(data=st.data(), worker=some.workers, unheard=st.integers(0, 1), lease=st.sampled_from((10.0, 30.0)))
    def heartbeat(self, data: st.DataObject, worker: str, unheard: int, lease: float) -> None:
        held = data.draw(st.lists(self.some_claims().flatmap(_held), max_size=4)) if self.claims else []
        self.beat(worker, held, unheard, lease)

    @rule(data=st.data(), worker=some.workers)
    def late_heartbeat(self, data: st.DataObject, worker: str) -> None:
        """From whoever lost a job that somebody else is running by now: by chance it would be rare."""
        running = {job.id: job.fence for job in self.jobs() if job.state is State.RUNNING}
        late = [claimed for claimed in self.claims if running.get(claimed.id, claimed.fence) != claimed.fence]
        if late:
            self.beat(worker, [data.draw(st.sampled_from(late).flatmap(_held))], 0, 30.0)

    def beat(self, worker: str, held: list[Held], unheard: int, lease: float) -> None:
        beat = Heartbeat(
            worker=worker,
            received=max(0, self.numbers[worker] - unheard),
            lease=lease,
            held=tuple(held),
            host="host",
            pid=1,
            queues=("a",),
            concurrency=2,
        )
        self.both(lambda store: store.extend(beat))

    def some_claims(self) -> st.SearchStrategy[Claimed]:
        """Claims that may be current, and any that ever was."""
        running = {(job.id, job.claim) for job in self.jobs() if job.state is State.RUNNING}
        current = [claimed for claimed in self.claims if (claimed.id, claimed.claim) in running]
        anything = st.sampled_from(self.claims)
        return st.one_of(st.sampled_from(current), anything) if current else anything


def _settlement(
    claimed: Claimed, outcome: Outcome, spent: Spent | None, charged: Outcome | None
) -> Settlement:
    return Settlement(claimed.id, claimed.fence, claimed.claim, outcome, spent, charged)


def _held(claimed: Claimed) -> st.SearchStrategy[Held]:
    return st.builds(
        Held,
        job=st.just(claimed.id),
        fence=st.just(claimed.fence),
        claim=st.just(claimed.claim),
        renew=st.booleans(),
        progress=st.sampled_from((None, 0.5)),
        note=st.sampled_from((None, "half")),
        log=st.sampled_from(((), (Said("one", 2.0), Said("two")))),
    )
