"""A batch attempt: several jobs that share one slot, one deadline and one call of the handler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from tidemill.core.batching import call_needs
from tidemill.core.claims import ClaimedJob
from tidemill.core.outcomes import JobRelease, Outcome
from tidemill.errors import InvalidPayload
from tidemill.worker.attempt import Attempt, CancelReason
from tidemill.worker.outcomes import invalid_payload_outcome, limit_result_size
from tidemill.worker.usage import AttemptUsage


def group_batches(attempts: Iterable[Attempt], sent: float) -> Iterator[Attempt]:
    """Yields one batch attempt per batch, and each attempt without a batch unchanged. `sent` is the earliest
    event-loop time at which the store may have reserved the units."""
    members: list[Attempt] = []
    for attempt in attempts:
        if members and (not attempt.job.call or attempt.job.call != members[0].job.call):
            yield _make_batch(members, sent)
            members = []
        if attempt.definition is None or attempt.definition.batch is None:
            yield attempt
        else:
            members.append(attempt)
    if members:
        yield _make_batch(members, sent)


def _make_batch(members: Sequence[Attempt], sent: float) -> BatchAttempt:
    lead = members[0]
    if lead.job.call not in {"", lead.job.id}:
        lead = _make_missing_lead(lead, sent)  # cancelled before the claim was repeated
        members = (lead, *members)
    batch = BatchAttempt(
        lead.job, lead.definition, lead.notify, lead.boot, lead.environment, members=tuple(members)
    )
    if lead.usage is not None:
        batch.start_usage(sent)
        lead.usage = batch.usage
    for member in members:
        member.batch = batch
    return batch


def _make_missing_lead(first: Attempt, sent: float) -> Attempt:
    """Returns an attempt for the lead (the first job of a batch), if the claim did not return the lead.

    The attempt only reports the used units; the handler does not get its item. `first` is the first attempt
    that the claim returned."""
    job = msgspec.structs.replace(first.job, id=first.job.call)
    lead = Attempt(job, first.definition, first.notify, first.boot, first.environment, stop=CancelReason.LOST)
    if job.needs:
        lead.start_usage(sent)
    return lead


class BatchAttempt(Attempt):
    """One run of a batch.

    - `members`: one attempt for each job of the batch. Each is settled separately.
    - `job`: the first job of the batch. The units of the batch are reserved under its id.
    - `runs`: the members whose items the handler gets.
    - `items`: the items of `runs`, in the same order.
    - `outcomes_by_job`: outcomes by job id. A member without an entry gets the outcome of the batch."""

    is_batch: ClassVar[bool] = True

    members: tuple[Attempt, ...] = ()
    runs: list[Attempt] = msgspec.field(default_factory=list)
    items: list[Any] = msgspec.field(default_factory=list)
    outcomes_by_job: dict[str, Outcome] = msgspec.field(default_factory=dict)

    @property
    def timeout(self) -> float:
        """The shortest timeout of the members, in seconds. A batch has only one deadline."""
        return min(member.timeout for member in self.members)

    @property
    def jobs(self) -> tuple[ClaimedJob, ...]:
        """The jobs of `runs`, in the order of the items."""
        return tuple(member.job for member in self.runs)

    @property
    def is_lost(self) -> bool:
        return all(member.stop is CancelReason.LOST for member in self.members)

    @property
    def is_leased(self) -> bool:
        return all(member.is_leased for member in self.runs)

    @property
    def has_report(self) -> bool:
        return any(member.has_report for member in self.members)

    def start_usage(self, sent: float) -> None:
        assert self.definition is not None  # noqa: S101 - an unknown task makes no call
        assert self.definition.batch is not None  # noqa: S101 - nor does a plain one
        jobs = [member.job for member in self.members if member.stop is None]
        needs = call_needs(self.definition.batch.policy, jobs)
        start_by = self.environment.start_by(self.job, sent)
        self.usage = AttemptUsage(
            self.environment,
            self.job,
            lambda: self.deadline,
            needs=needs,
            start_by=start_by,
            classifiers=self.classifiers,
        )

    def begin(self) -> None:
        """Marks all members as begun and decodes their items. If a payload cannot be decoded, only its member
        fails; the other members run."""
        assert self.definition is not None  # noqa: S101 - an unknown task makes no call
        self.begun = True
        for member in self.members:
            member.begun, member.started = True, self.started
            if member.stop is None and member.job.id not in self.outcomes_by_job:
                try:
                    [item] = self.definition.payload.decode(member.job.payload)[0]
                except InvalidPayload as error:
                    self.outcomes_by_job[member.job.id] = invalid_payload_outcome(member.job, error)
                else:
                    self.runs.append(member)
                    self.items.append(item)

    def set_outcomes(self, outcomes: Sequence[Outcome], charged: Sequence[Outcome] = ()) -> Outcome:
        """Stores one outcome for each member of `runs`, in order. Returns the first outcome.

        `charged`: empty, or a second outcome per member, which costs an attempt."""
        self.outcomes_by_job.update(zip((job.id for job in self.jobs), outcomes, strict=True))
        for member, replacement in zip(self.runs, charged, strict=bool(charged)):
            member.charged = replacement
        return outcomes[0]

    def conclude(self, outcome: Outcome) -> None:
        """Ends the batch and sets the outcome of each member (I6). Members without an entry in
        `outcomes_by_job` get `outcome`."""
        self.outcome = outcome
        self.members[0].usage = self.usage
        if self.usage is not None:
            self.usage.end()
        for member in self.members:
            member.ended = self.ended
            if member.stop is None:
                ended = self.outcomes_by_job.get(member.job.id, outcome)
                member.outcome = ended if member.job.flow is None else limit_result_size(ended)
            elif member.usage is not None:  # the settlement of the first job reports the used units
                member.outcome = JobRelease()

    def to_settle(self) -> Sequence[Attempt]:
        return [member for member in self.members if member.outcome is not None]

    def progress(self, fraction: float, note: str | None) -> None:
        """Sets progress and note on every job of the running batch."""
        for member in self.runs:
            member.progress(fraction, note)

    def log(self, line: str) -> None:
        for member in self.runs:
            member.log(line)
