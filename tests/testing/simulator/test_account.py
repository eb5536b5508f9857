"""Tests of the account: charging, refusals and their reasons, and external traffic."""

from __future__ import annotations

import pytest

from tidemill.testing.simulator import (
    AccelerationLimit,
    Disruption,
    ExternalTraffic,
    Quota,
    QuotaChange,
    RefusalCause,
    SimulatorOptions,
)
from tidemill.testing.simulator.account import SimulatedAccount
from tidemill.testing.simulator.http_messages import SimulatorCall
from tidemill.testing.simulator.quotas import to_ticks


def call(tokens: int = 1, out: int = 0, most: int = 0, **more: str) -> SimulatorCall:
    return SimulatorCall(
        kind="chat",
        model=more.get("model", "m"),
        key=more.get("key", ""),
        mark=more.get("mark"),
        input_tokens=tokens,
        output_tokens=out,
        max_tokens=most,
    )


def account(*quotas: Quota, wall: float = 0.0, seed: int = 0, **options: object) -> SimulatedAccount:
    return SimulatedAccount(quotas, SimulatorOptions(**options), wall=wall, seed=seed)  # type: ignore[arg-type]


def reasons(
    used: SimulatedAccount, at: list[float], asked: SimulatorCall | None = None
) -> list[RefusalCause | None]:
    return [used.arrive(asked or call(), to_ticks(moment)).reason for moment in at]


def test_the_first_beyond_the_amount_is_refused_and_is_let_in_a_window_later() -> None:
    used = account(Quota.rolling("requests", 2))
    assert reasons(used, [0, 1, 59.999999, 60]) == [None, None, RefusalCause.RATE, None]
    assert [refusal.at for refusal in used.request_log.refused] == [59.999999]
    assert used.request_log.max_units_in_window("requests", 60) == 2


def test_refused_calls_count_only_where_they_do() -> None:
    assert reasons(account(Quota.rolling("requests", 1)), [0, 30, 60]) == [None, RefusalCause.RATE, None]
    strict = account(Quota.rolling("requests", 1), rejected_count=True)
    assert reasons(strict, [0, 30, 60, 120]) == [None, RefusalCause.RATE, RefusalCause.RATE, None]


def test_a_refused_call_takes_nothing_of_the_other_quotas() -> None:
    used = account(Quota.rolling("requests", 1), Quota.rolling("input_tokens", 10))
    assert reasons(used, [0, 1], call(4)) == [None, RefusalCause.RATE]
    assert [one.left for one in used.quota_statuses("", to_ticks(1), {})] == [0, 6]


def test_charged_at_admission_is_the_larger_of_the_two_and_nothing_comes_back() -> None:
    used = account(Quota.rolling("tokens", 100), charge="admission")
    verdict = used.arrive(call(10, out=5, most=60), 0)
    used.finish(call(10, out=5, most=60), verdict, 1)
    assert used.quota_statuses("", 1, {})[0].left == 40
    assert used.arrive(call(41, most=3), 2).reason is RefusalCause.RATE
    assert used.arrive(call(40, most=3), 2).reason is None


def test_actual_output_counts_when_it_is_there_even_beyond_the_quota() -> None:
    used = account(Quota.rolling("output_tokens", 10), Quota.rolling("input_tokens", 100))
    first, second = used.arrive(call(5, out=8), 0), used.arrive(call(5, out=8), 0)
    used.finish(call(5, out=8), first, to_ticks(1))
    used.finish(call(5, out=8), second, to_ticks(2))
    assert [one.left for one in used.quota_statuses("", to_ticks(2), {})] == [-6, 90]
    assert reasons(used, [60.999999, 61]) == [RefusalCause.RATE, None]
    assert [(bill.input_tokens, bill.output_tokens) for bill in used.request_log.bills] == [(5, 8), (5, 8)]


def test_nothing_is_generated_when_no_output_is_left() -> None:
    used = account(Quota.rolling("output_tokens", 8))
    used.finish(call(out=8), used.arrive(call(out=8), 0), to_ticks(1))
    assert reasons(used, [2, 61]) == [RefusalCause.RATE, None]


def test_several_quotas_are_violated_at_once_and_the_longest_gives_the_reason() -> None:
    used = account(Quota.rolling("requests", 1), Quota.day("requests", 1))
    used.arrive(call(), 0)
    verdict = used.arrive(call(), to_ticks(1))
    assert verdict.reason is RefusalCause.DAY
    assert [(one.quota.shape, one.wait) for one in verdict.violated] == [
        ("rolling", to_ticks(59)),
        ("day", to_ticks(86_399)),
    ]


def test_a_call_over_the_quota_is_too_large_and_a_zero_quota_is_not_on_tier() -> None:
    assert reasons(account(Quota.rolling("input_tokens", 5)), [0], call(6)) == [RefusalCause.TOO_LARGE]
    assert reasons(account(Quota.bucket("requests", 0)), [0]) == [RefusalCause.NOT_ON_TIER]


def test_calls_under_way_are_freed_by_their_end() -> None:
    used = account(Quota.concurrent(1))
    verdict = used.arrive(call(), 0)
    assert used.arrive(call(), 1).reason is RefusalCause.CONCURRENCY
    used.finish(call(), verdict, 2)
    assert used.arrive(call(), 2).reason is None


def test_counters_per_model_or_key() -> None:
    by_model = account(Quota.rolling("requests", 1), scope="model")
    verdicts = [by_model.arrive(call(model=name), 0).reason for name in ("a", "b", "a")]
    assert verdicts == [None, None, RefusalCause.RATE]
    by_key = account(Quota.rolling("requests", 1), scope="key")
    assert [by_key.arrive(call(key=name), 0).reason for name in ("a", "b", "b")] == [
        None,
        None,
        RefusalCause.RATE,
    ]


def test_a_changed_limit_holds_from_its_time_also_for_counters_not_yet_there() -> None:
    change = QuotaChange(10, "requests per minute", 1)
    used = account(Quota.rolling("requests", 3), changes=(change,), scope="model")
    request = call(model="early")
    assert reasons(used, [9, 9.5, 10], request) == [None, None, RefusalCause.RATE]
    assert reasons(used, [11, 11], call(model="late")) == [None, RefusalCause.RATE]
    with pytest.raises(ValueError, match="not a quota"):
        account(Quota.rolling("requests", 3), changes=(QuotaChange(0, "tokens per minute", 1),))


def test_trouble_refuses_everything_for_its_time_and_counts_nothing() -> None:
    storm = Disruption(RefusalCause.OVERLOAD, 5, 6)
    used = account(Quota.rolling("requests", 2), disruptions=(storm,))
    assert reasons(used, [4, 5, 5.5, 6, 7]) == [
        None,
        RefusalCause.OVERLOAD,
        RefusalCause.OVERLOAD,
        None,
        RefusalCause.RATE,
    ]


def test_external_calls_use_the_same_quota_and_are_marked_external() -> None:
    others = ExternalTraffic(times=(1, 2, 50), input_tokens=30)
    used = account(Quota.rolling("input_tokens", 100), external=(others,))
    assert reasons(used, [3, 4, 62], call(40)) == [None, RefusalCause.RATE, None]
    assert [(one.at, one.external) for one in used.request_log.arrivals] == [
        (1, True),
        (2, True),
        (3, False),
        (4, False),
        (50, True),
        (62, False),
    ]
    assert [one.at for one in used.request_log.refusals if one.external] == [50]
    assert [one.at for one in used.request_log.refused] == [4]
    assert used.request_log.bills == []


def test_foreign_calls_at_a_rate_are_drawn_from_the_seed() -> None:
    def times(seed: int) -> list[float]:
        used = account(
            Quota.rolling("requests", 10_000),
            external=(ExternalTraffic(per_second=2, start=10, end=110),),
            seed=seed,
        )
        used.advance(to_ticks(200))
        return [arrival.at for arrival in used.request_log.arrivals]

    assert times(1) == times(1) != times(2)
    assert all(10 <= at < 110 for at in times(1))
    assert 150 < len(times(1)) < 250


def test_a_foreign_call_is_under_way_for_its_time() -> None:
    used = account(Quota.concurrent(1), external=(ExternalTraffic(times=(1,), seconds=5),))
    assert reasons(used, [0.5]) == [None]
    used = account(Quota.concurrent(1), external=(ExternalTraffic(times=(1,), seconds=5),))
    assert reasons(used, [2, 6]) == [RefusalCause.CONCURRENCY, None]


def test_sharp_growth_is_refused_and_gradual_growth_is_not() -> None:
    rule = AccelerationLimit(over=10, factor=2, free=3)
    used = account(Quota.rolling("requests", 1000), acceleration=rule)
    assert reasons(used, [0, 1, 2, 3]) == [None, None, None, RefusalCause.ACCELERATION]
    six = [12.5 + step / 10 for step in range(7)]
    assert reasons(used, six) == [None] * 6 + [RefusalCause.ACCELERATION]


def test_the_providers_calendar_may_be_ahead() -> None:
    used = account(Quota.day("requests", 1), wall=86_400 - 100, skew=40.0)
    assert reasons(used, [0, 59.999999, 60]) == [None, RefusalCause.DAY, None]


def test_the_ledger_finds_what_was_paid_twice() -> None:
    used = account(Quota.rolling("requests", 10))
    for mark in ("a", "b", "a", "a"):
        request = call(mark=mark)
        used.finish(request, used.arrive(request, 0), 0)
    assert used.request_log.duplicate_payments() == {"a": 2}
    assert len(used.request_log.bills_for_job("b")) == 1
    assert len(used.request_log.unknown) == 4


def test_the_busiest_stretch_is_found_wherever_it_is() -> None:
    used = account(Quota.rolling("requests", 100, per=1))
    reasons(used, [0, 5, 9.9, 10, 10.1, 14.9, 30])
    # 9.9 to 14.9 is a whole window: its end belongs to the next one.
    assert used.request_log.max_units_in_window("requests", 5) == 3
    assert used.request_log.max_units_in_window("requests", 5.000001) == 4
    assert used.request_log.max_units_in_window("requests", 0.1) == 1
