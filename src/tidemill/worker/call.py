"""One call of a batch task in the worker's hands: several jobs, one slot, one deadline, one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from tidemill.core.batching import needs_of_call
from tidemill.core.claims import Claimed
from tidemill.core.outcomes import Outcome, Release
from tidemill.errors import InvalidPayload
from tidemill.worker.attempt import Attempt, Stop
from tidemill.worker.in_flow import fitting, unreadable
from tidemill.worker.spending import Spending


def in_calls(attempts: Iterable[Attempt], sent: float) -> Iterator[Attempt]:
    """What a claim gave at that time of the loop or later: jobs of batch tasks as calls, the others as they
    are. Those of one call come one behind the other."""
    members: list[Attempt] = []
    for attempt in attempts:
        if members and (not attempt.job.call or attempt.job.call != members[0].job.call):
            yield _call_of(members, sent)
            members = []
        if attempt.definition is None or attempt.definition.batch is None:
            yield attempt
        else:
            members.append(attempt)
    if members:
        yield _call_of(members, sent)


def _call_of(members: Sequence[Attempt], sent: float) -> Call:
    lead = members[0]
    if lead.job.call not in {"", lead.job.id}:
        lead = _absent_lead(lead, sent)
        members = (lead, *members)
    call = Call(lead.job, lead.definition, lead.notify, lead.boot, lead.metering, members=tuple(members))
    if lead.spending is not None:
        call.reserved(sent)
        lead.spending = call.spending
    for member in members:
        member.call = call
    return call


def _absent_lead(first: Attempt, sent: float) -> Attempt:
    """A claim that is repeated comes without jobs that were cancelled meanwhile. What the call reserved is
    still under the name of its lead."""
    job = msgspec.structs.replace(first.job, id=first.job.call)
    lead = Attempt(job, first.definition, first.notify, first.boot, first.metering, stop=Stop.LOST)
    if job.needs:
        lead.reserved(sent)
    return lead


class Call(Attempt):
    """What runs is the call, what is claimed, listed and settled are its `members`, an attempt each. `job`
    is that of its lead, the first, which holds what the call reserved. `verdicts` are outcomes by job, of
    members that do not get the one the call is concluded with. `runs` are the members whose `items` the
    handler is given: all but those that were lost before, and those whose payload cannot be read."""

    shared: ClassVar[bool] = True

    members: tuple[Attempt, ...] = ()
    runs: list[Attempt] = msgspec.field(default_factory=list)
    items: list[Any] = msgspec.field(default_factory=list)
    verdicts: dict[str, Outcome] = msgspec.field(default_factory=dict)

    @property
    def timeout(self) -> float:
        """One deadline for all, so it is the shortest of theirs."""
        return min(member.timeout for member in self.members)

    @property
    def jobs(self) -> tuple[Claimed, ...]:
        """Those the handler has the items of, in their order."""
        return tuple(member.job for member in self.runs)

    @property
    def is_lost(self) -> bool:
        return all(member.stop is Stop.LOST for member in self.members)

    @property
    def is_leased(self) -> bool:
        return all(member.is_leased for member in self.runs)

    @property
    def has_news(self) -> bool:
        return any(member.has_news for member in self.members)

    def reserved(self, sent: float) -> None:
        assert self.definition is not None  # noqa: S101 - an unknown task makes no call
        assert self.definition.batch is not None  # noqa: S101 - nor does a plain one
        jobs = [member.job for member in self.members if member.stop is None]
        needs = needs_of_call(self.definition.batch.together, jobs)
        start_by = self.metering.start_by(self.job, sent)
        self.spending = Spending(
            self.metering,
            self.job,
            lambda: self.deadline,
            needs=needs,
            start_by=start_by,
            classifiers=self.classifiers,
        )

    def begin(self) -> None:
        """Its task has taken the first step: an item that cannot be read fails alone."""
        assert self.definition is not None  # noqa: S101 - an unknown task makes no call
        self.begun = True
        for member in self.members:
            member.begun, member.started = True, self.started
            if member.stop is None and member.job.id not in self.verdicts:
                try:
                    [item] = self.definition.payload.decode(member.job.payload)[0]
                except InvalidPayload as error:
                    self.verdicts[member.job.id] = unreadable(member.job, error)
                else:
                    self.runs.append(member)
                    self.items.append(item)

    def judged(self, outcomes: Sequence[Outcome], charged: Sequence[Outcome] = ()) -> Outcome:
        """One for each of `runs`."""
        self.verdicts.update(zip((job.id for job in self.jobs), outcomes, strict=True))
        for member, instead in zip(self.runs, charged, strict=bool(charged)):
            member.charged = instead
        return outcomes[0]

    def conclude(self, outcome: Outcome) -> None:
        """A lost member has none. A lost lead is settled all the same: what the call used is told with it,
        and booked whatever became of the job (I6)."""
        self.outcome = outcome
        self.members[0].spending = self.spending
        if self.spending is not None:
            self.spending.end()
        for member in self.members:
            member.ended = self.ended
            if member.stop is None:
                ended = self.verdicts.get(member.job.id, outcome)
                member.outcome = ended if member.job.flow is None else fitting(ended)
            elif member.spending is not None:
                member.outcome = Release()

    def settles(self) -> Sequence[Attempt]:
        return [member for member in self.members if member.outcome is not None]

    def progress(self, fraction: float, note: str | None) -> None:
        """Whoever looks at one of the jobs sees how far its call is."""
        for member in self.runs:
            member.progress(fraction, note)

    def log(self, line: str) -> None:
        for member in self.runs:
            member.log(line)
