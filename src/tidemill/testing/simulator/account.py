"""The simulated account of a provider. It refuses a call if a quota has too few free units, or during a
disruption.

The decisions depend only on the calls and their times. Pass the calls in the order of their times.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from tidemill.testing.simulator.http_messages import SimulatorCall
from tidemill.testing.simulator.options import (
    AccelerationLimit,
    ExternalTraffic,
    QuotaChange,
    RefusalCause,
    SimulatorOptions,
    generate_call_times,
)
from tidemill.testing.simulator.quota_meters import QuotaMeter, create_meter
from tidemill.testing.simulator.quotas import TICKS_PER_SECOND, Quota, QuotaShape, UnitCounts, to_ticks
from tidemill.testing.simulator.request_log import BillEntry, RefusalEntry, RequestEntry, RequestLog

SHAPES_BY_DURATION: tuple[QuotaShape, ...] = ("concurrent", "bucket", "rolling", "period", "day")
CAUSE_BY_SHAPE: dict[QuotaShape, RefusalCause] = {
    "concurrent": RefusalCause.CONCURRENCY,
    "bucket": RefusalCause.RATE,
    "rolling": RefusalCause.RATE,
    "period": RefusalCause.PERIOD,
    "day": RefusalCause.DAY,
}


class QuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one quota after a decision. Times are in microseconds.

    - `left`: the free units
    - `needed`: the units that the call needs
    - `wait`: the time until the needed units are free; None if it is unknown or infinite
    - `full`: the time until the whole quota is free
    - `violated`: True if the call exceeded this quota
    """

    quota: Quota
    amount: int
    left: int
    needed: int
    wait: int | None
    full: int
    violated: bool = False


class QuotaDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about one call. `reason` is None if the call was admitted. `quota_statuses` has the state
    of each quota, in the order in which the quotas were given."""

    at: int
    scope: str
    reason: RefusalCause | None
    quota_statuses: tuple[QuotaStatus, ...]

    @property
    def violated(self) -> tuple[QuotaStatus, ...]:
        return tuple(quota_status for quota_status in self.quota_statuses if quota_status.violated)


class SimulatedAccount:
    """The account of one simulated provider. Pass calls and their ends in the order of their times. `wall` is
    the wall time at the start, without the provider's clock error."""

    def __init__(
        self, quotas: Sequence[Quota], options: SimulatorOptions, *, wall: float, seed: int = 0
    ) -> None:
        names = [quota.name for quota in quotas]
        for name in [change.quota for change in options.changes]:
            if name not in names:
                raise ValueError(f"changes: {name!r} is not a quota; there are: {', '.join(names)}")
        if len(set(names)) < len(names):
            raise ValueError(f"quotas: each may be given once, there are: {', '.join(names)}")
        self.request_log = RequestLog()
        self._quotas, self._options, self._wall = tuple(quotas), options, wall + options.skew
        self._amounts = {quota.name: quota.amount for quota in quotas}
        self._meters: dict[str, dict[str, QuotaMeter]] = {}
        self._recent: dict[str, deque[int]] = {}
        self._order = count()
        self._scheduled_events: list[tuple[int, int, QuotaChange | _ExternalCalls | _ExternalCallEnd]] = []
        for change in options.changes:
            self._schedule_event(to_ticks(change.at), change)
        for number, external in enumerate(options.external):
            self._schedule_next_call(_ExternalCalls(external, generate_call_times(external, seed + number)))

    def arrive(self, call: SimulatorCall, at: int) -> QuotaDecision:
        """Counts a call of the test and returns the decision to admit or refuse it. `at` is the time in
        microseconds since the provider's start."""
        self.advance(at)
        return self._arrive(call, at, self.scope_of(call), external=False)

    def finish(self, call: SimulatorCall, verdict: QuotaDecision, at: int) -> BillEntry:
        """Ends an admitted call and returns its bill. `verdict` is the decision of `arrive`."""
        self.advance(at)
        self._end(call, verdict.scope, at)
        bill = BillEntry(
            at=at / TICKS_PER_SECOND,
            arrived=verdict.at / TICKS_PER_SECOND,
            mark=call.mark,
            scope=verdict.scope,
            kind=call.kind,
            model=call.model,
            texts=len(call.texts),
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
        )
        self.request_log.bills.append(bill)
        return bill

    def advance(self, at: int) -> None:
        """Applies the quota changes and external calls up to the time `at`."""
        while self._scheduled_events and self._scheduled_events[0][0] <= at:
            when, _, event = heapq.heappop(self._scheduled_events)
            match event:
                case QuotaChange():
                    self._amounts[event.quota] = event.amount
                    for meters in self._meters.values():
                        meters[event.quota].change(event.amount, when)
                case _ExternalCalls():
                    verdict = self._arrive(event.call(), when, event.external.scope, external=True)
                    if verdict.reason is None:
                        self._schedule_event(
                            when + to_ticks(event.external.seconds), _ExternalCallEnd(event.external)
                        )
                    self._schedule_next_call(event)
                case _ExternalCallEnd():
                    self._end(_create_external_call(event.external), event.external.scope, when)

    def scope_of(self, call: SimulatorCall) -> str:
        match self._options.scope:
            case "model":
                return call.model
            case "key":
                return call.key
            case "account":
                return ""

    def quota_statuses(
        self, scope: str, at: int, needed: UnitCounts, violated: Sequence[str] = ()
    ) -> tuple[QuotaStatus, ...]:
        meters = self._of(scope)
        return tuple(
            QuotaStatus(
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

    def _arrive(self, call: SimulatorCall, at: int, scope: str, *, external: bool) -> QuotaDecision:
        taken = _units_at_admission(call, self._options)
        needed = dict(taken)
        if self._options.charge == "actual" and call.kind == "chat":
            # The output size is still unknown, but at least one output token must be left.
            needed["output_tokens"] = 1
        reason, violated = self._judge(needed, scope, at)
        if reason is None:
            self._take(taken, scope, at)
            self._recent[scope].append(at)
        elif violated and self._options.rejected_count:
            self._reject(scope, at)
        arrival = RequestEntry(
            at=at / TICKS_PER_SECOND,
            mark=call.mark,
            scope=scope,
            units=taken if reason is None else {},
            admitted=reason is None,
            external=external,
        )
        self.request_log.arrivals.append(arrival)
        if reason is not None:
            self.request_log.refusals.append(
                RefusalEntry(
                    at=at / TICKS_PER_SECOND,
                    mark=call.mark,
                    scope=scope,
                    reason=reason,
                    quotas=violated,
                    external=external,
                )
            )
        quota_statuses = self.quota_statuses(scope, at, needed, violated)
        return QuotaDecision(at=at, scope=scope, reason=reason, quota_statuses=quota_statuses)

    def _judge(self, needed: UnitCounts, scope: str, at: int) -> tuple[RefusalCause | None, tuple[str, ...]]:
        for disruption in self._options.disruptions:
            if disruption.start * TICKS_PER_SECOND <= at < disruption.end * TICKS_PER_SECOND:
                return disruption.reason, ()
        meters = self._of(scope)
        short = [quota for quota in self._quotas if needed.get(quota.unit, 0) > meters[quota.name].left(at)]
        names = tuple(quota.name for quota in short)
        if any(meters[quota.name].amount == 0 for quota in short):
            return RefusalCause.NOT_ON_TIER, names
        if any(self._too_large(quota, needed, scope, at) for quota in short):
            return RefusalCause.TOO_LARGE, names
        if short:
            return CAUSE_BY_SHAPE[max((quota.shape for quota in short), key=SHAPES_BY_DURATION.index)], names
        if self._options.acceleration and self._exceeds_acceleration(self._options.acceleration, scope, at):
            return RefusalCause.ACCELERATION, ()
        return None, ()

    def _too_large(self, quota: Quota, needed: UnitCounts, scope: str, at: int) -> bool:
        wait = self._of(scope)[quota.name].wait(needed.get(quota.unit, 0), at)
        return quota.shape != "concurrent" and wait is None

    def _exceeds_acceleration(self, rule: AccelerationLimit, scope: str, at: int) -> bool:
        recent, over = self._recent[scope], to_ticks(rule.over)
        while recent and recent[0] <= at - 2 * over:
            recent.popleft()
        before = sum(1 for when in recent if when <= at - over)
        return len(recent) - before + 1 > max(rule.free, rule.factor * before)

    def _take(self, units: UnitCounts, scope: str, at: int) -> None:
        for quota in self._quotas:
            if taken := units.get(quota.unit, 0):
                self._of(scope)[quota.name].take(taken, at)

    def _reject(self, scope: str, at: int) -> None:
        """Counts a refused call as one request and no tokens, for the model or API key `scope`."""
        for quota in self._quotas:
            if quota.unit == "requests":
                self._of(scope)[quota.name].reject(at)

    def _end(self, call: SimulatorCall, scope: str, at: int) -> None:
        meters = self._of(scope)
        generated = _units_at_completion(call, self._options)
        for quota in self._quotas:
            meters[quota.name].give_back(1)
        self._take(generated, scope, at)

    def _of(self, scope: str) -> dict[str, QuotaMeter]:
        if scope not in self._meters:
            self._recent[scope] = deque()
            self._meters[scope] = {
                quota.name: create_meter(replace(quota, amount=self._amounts[quota.name]), self._wall)
                for quota in self._quotas
            }
        return self._meters[scope]

    def _schedule_event(self, at: int, event: QuotaChange | _ExternalCalls | _ExternalCallEnd) -> None:
        heapq.heappush(self._scheduled_events, (at, next(self._order), event))

    def _schedule_next_call(self, calls: _ExternalCalls) -> None:
        if (at := next(calls.times, None)) is not None:
            self._schedule_event(at, calls)


class _ExternalCalls(msgspec.Struct):
    external: ExternalTraffic
    times: Iterator[int]

    def call(self) -> SimulatorCall:
        return _create_external_call(self.external)


class _ExternalCallEnd(msgspec.Struct):
    external: ExternalTraffic


def _create_external_call(external: ExternalTraffic) -> SimulatorCall:
    return SimulatorCall(
        kind="chat",
        model="",
        input_tokens=external.input_tokens,
        output_tokens=external.output_tokens,
        max_tokens=external.max_tokens,
    )


def _units_at_admission(call: SimulatorCall, options: SimulatorOptions) -> UnitCounts:
    units = {"requests": 1, "concurrent": 1, "input_tokens": call.input_tokens, "output_tokens": 0}
    if options.charge == "admission":
        return units | {
            "tokens": max(call.max_tokens, call.input_tokens),
            "output_tokens": call.max_tokens,
        }
    return units | {"tokens": call.input_tokens}


def _units_at_completion(call: SimulatorCall, options: SimulatorOptions) -> UnitCounts:
    if options.charge == "admission":
        return {}
    return {"tokens": call.output_tokens, "output_tokens": call.output_tokens}
