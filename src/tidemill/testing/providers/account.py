"""The account: several meters decide together about each call, in the order of their times.

Everything here is a function of the calls and their times; nothing waits and nothing reads a clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from tidemill.testing.providers.asked import Asked
from tidemill.testing.providers.foreign import times_of
from tidemill.testing.providers.ledger import Arrival, Bill, Ledger, Refusal
from tidemill.testing.providers.meter import Meter, meter_for
from tidemill.testing.providers.options import Acceleration, Change, Foreign, Options, Reason
from tidemill.testing.providers.quota import TICKS, Quota, Shape, Units, ticks

ENDS_LAST: tuple[Shape, ...] = ("concurrent", "bucket", "rolling", "period", "day")
BECAUSE: dict[Shape, Reason] = {
    "concurrent": Reason.CONCURRENCY,
    "bucket": Reason.RATE,
    "rolling": Reason.RATE,
    "period": Reason.PERIOD,
    "day": Reason.DAY,
}


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One quota as it stands after a decision; times in ticks. `wait` is for `needed` units, None when it
    cannot be known or never comes."""

    quota: Quota
    amount: int
    left: int
    needed: int
    wait: int | None
    full: int
    violated: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` is None for a call that was let in; `standings` are in the order of the quotas."""

    at: int
    scope: str
    reason: Reason | None
    standings: tuple[Standing, ...]

    @property
    def violated(self) -> tuple[Standing, ...]:
        return tuple(standing for standing in self.standings if standing.violated)


class Account:
    """`wall` is the true wall time at the start. Calls arrive and end in the order of their times."""

    def __init__(self, quotas: Sequence[Quota], options: Options, *, wall: float, seed: int = 0) -> None:
        names = [quota.name for quota in quotas]
        for name in [change.quota for change in options.changes]:
            if name not in names:
                raise ValueError(f"changes: {name!r} is not a quota; there are: {', '.join(names)}")
        if len(set(names)) < len(names):
            raise ValueError(f"quotas: each may be given once, there are: {', '.join(names)}")
        self.ledger = Ledger()
        self._quotas, self._options, self._wall = tuple(quotas), options, wall + options.skew
        self._amounts = {quota.name: quota.amount for quota in quotas}
        self._meters: dict[str, dict[str, Meter]] = {}
        self._recent: dict[str, deque[int]] = {}
        self._order = count()
        self._coming: list[tuple[int, int, Change | _Calls | _End]] = []
        for change in options.changes:
            self._expect(ticks(change.at), change)
        for number, foreign in enumerate(options.foreign):
            self._expect_next(_Calls(foreign, times_of(foreign, seed + number)))

    def arrive(self, asked: Asked, at: int) -> Verdict:
        """A call of ours is counted, and let in or refused."""
        self.advance(at)
        return self._arrive(asked, at, self.scope_of(asked), foreign=False)

    def finish(self, asked: Asked, verdict: Verdict, at: int) -> Bill:
        """The answer of a call that was let in is complete, and is paid for."""
        self.advance(at)
        self._end(asked, verdict.scope, at)
        bill = Bill(
            at=at / TICKS,
            arrived=verdict.at / TICKS,
            mark=asked.mark,
            scope=verdict.scope,
            kind=asked.kind,
            model=asked.model,
            texts=len(asked.texts),
            input_tokens=asked.input_tokens,
            output_tokens=asked.output_tokens,
        )
        self.ledger.bills.append(bill)
        return bill

    def advance(self, at: int) -> None:
        """What happens to the account up to that moment without us."""
        while self._coming and self._coming[0][0] <= at:
            when, _, event = heapq.heappop(self._coming)
            match event:
                case Change():
                    self._amounts[event.quota] = event.amount
                    for meters in self._meters.values():
                        meters[event.quota].change(event.amount, when)
                case _Calls():
                    verdict = self._arrive(event.asked(), when, event.foreign.scope, foreign=True)
                    if verdict.reason is None:
                        self._expect(when + ticks(event.foreign.seconds), _End(event.foreign))
                    self._expect_next(event)
                case _End():
                    self._end(_foreign_call(event.foreign), event.foreign.scope, when)

    def scope_of(self, asked: Asked) -> str:
        match self._options.scope:
            case "model":
                return asked.model
            case "key":
                return asked.key
            case "account":
                return ""

    def standings(
        self, scope: str, at: int, needed: Units, violated: Sequence[str] = ()
    ) -> tuple[Standing, ...]:
        meters = self._of(scope)
        return tuple(
            Standing(
                quota=quota,
                amount=meter.amount,
                left=meter.left(at),
                needed=needed.get(quota.unit, 0),
                wait=meter.wait(needed.get(quota.unit, 0), at),
                full=meter.full(at),
                violated=quota.name in violated,
            )
            for quota in self._quotas
            for meter in (meters[quota.name],)
        )

    def _arrive(self, asked: Asked, at: int, scope: str, *, foreign: bool) -> Verdict:
        taken = _at_admission(asked, self._options)
        needed = dict(taken)
        if self._options.charge == "actual" and asked.kind == "chat":
            # Nobody knows yet how much it will be, but with nothing left nothing can be generated.
            needed["output_tokens"] = 1
        reason, violated = self._judge(needed, scope, at)
        if reason is None:
            self._take(taken, scope, at)
            self._recent[scope].append(at)
        elif violated and self._options.rejected_count:
            self._reject(scope, at)
        arrival = Arrival(
            at=at / TICKS,
            mark=asked.mark,
            scope=scope,
            units=taken if reason is None else {},
            admitted=reason is None,
            foreign=foreign,
        )
        self.ledger.arrivals.append(arrival)
        if reason is not None:
            self.ledger.refusals.append(
                Refusal(
                    at=at / TICKS,
                    mark=asked.mark,
                    scope=scope,
                    reason=reason,
                    quotas=violated,
                    foreign=foreign,
                )
            )
        standings = self.standings(scope, at, needed, violated)
        return Verdict(at=at, scope=scope, reason=reason, standings=standings)

    def _judge(self, needed: Units, scope: str, at: int) -> tuple[Reason | None, tuple[str, ...]]:
        for trouble in self._options.troubles:
            if trouble.start * TICKS <= at < trouble.end * TICKS:
                return trouble.reason, ()
        meters = self._of(scope)
        short = [quota for quota in self._quotas if needed.get(quota.unit, 0) > meters[quota.name].left(at)]
        names = tuple(quota.name for quota in short)
        if any(meters[quota.name].amount == 0 for quota in short):
            return Reason.NOT_ON_TIER, names
        if any(self._too_large(quota, needed, scope, at) for quota in short):
            return Reason.TOO_LARGE, names
        if short:
            return BECAUSE[max((quota.shape for quota in short), key=ENDS_LAST.index)], names
        if self._options.acceleration and self._grows_sharply(self._options.acceleration, scope, at):
            return Reason.ACCELERATION, ()
        return None, ()

    def _too_large(self, quota: Quota, needed: Units, scope: str, at: int) -> bool:
        wait = self._of(scope)[quota.name].wait(needed.get(quota.unit, 0), at)
        return quota.shape != "concurrent" and wait is None

    def _grows_sharply(self, rule: Acceleration, scope: str, at: int) -> bool:
        recent, over = self._recent[scope], ticks(rule.over)
        while recent and recent[0] <= at - 2 * over:
            recent.popleft()
        before = sum(1 for when in recent if when <= at - over)
        return len(recent) - before + 1 > max(rule.free, rule.factor * before)

    def _take(self, units: Units, scope: str, at: int) -> None:
        for quota in self._quotas:
            if taken := units.get(quota.unit, 0):
                self._of(scope)[quota.name].take(taken, at)

    def _reject(self, scope: str, at: int) -> None:
        """A refused call counts as a request; it has used no tokens."""
        for quota in self._quotas:
            if quota.unit == "requests":
                self._of(scope)[quota.name].reject(at)

    def _end(self, asked: Asked, scope: str, at: int) -> None:
        meters = self._of(scope)
        generated = _at_completion(asked, self._options)
        for quota in self._quotas:
            meters[quota.name].give_back(1)
        self._take(generated, scope, at)

    def _of(self, scope: str) -> dict[str, Meter]:
        if scope not in self._meters:
            self._recent[scope] = deque()
            self._meters[scope] = {
                quota.name: meter_for(replace(quota, amount=self._amounts[quota.name]), self._wall)
                for quota in self._quotas
            }
        return self._meters[scope]

    def _expect(self, at: int, event: Change | _Calls | _End) -> None:
        heapq.heappush(self._coming, (at, next(self._order), event))

    def _expect_next(self, calls: _Calls) -> None:
        if (at := next(calls.times, None)) is not None:
            self._expect(at, calls)


class _Calls(msgspec.Struct):
    foreign: Foreign
    times: Iterator[int]

    def asked(self) -> Asked:
        return _foreign_call(self.foreign)


class _End(msgspec.Struct):
    foreign: Foreign


def _foreign_call(foreign: Foreign) -> Asked:
    return Asked(
        kind="chat",
        model="",
        input_tokens=foreign.input_tokens,
        output_tokens=foreign.output_tokens,
        max_tokens=foreign.max_tokens,
    )


def _at_admission(asked: Asked, options: Options) -> Units:
    units = {"requests": 1, "concurrent": 1, "input_tokens": asked.input_tokens, "output_tokens": 0}
    if options.charge == "admission":
        return units | {
            "tokens": max(asked.max_tokens, asked.input_tokens),
            "output_tokens": asked.max_tokens,
        }
    return units | {"tokens": asked.input_tokens}


def _at_completion(asked: Asked, options: Options) -> Units:
    if options.charge == "admission":
        return {}
    return {"tokens": asked.output_tokens, "output_tokens": asked.output_tokens}
