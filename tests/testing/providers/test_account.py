"""How an account decides: charging, what is refused and why, and what others do to it."""

from __future__ import annotations

import pytest

from tidemill.testing.providers import Acceleration, Change, Foreign, Options, Quota, Reason, Trouble
from tidemill.testing.providers.account import Account
from tidemill.testing.providers.asked import Asked
from tidemill.testing.providers.quota import ticks


def call(tokens: int = 1, out: int = 0, most: int = 0, **more: str) -> Asked:
    return Asked(
        kind="chat",
        model=more.get("model", "m"),
        key=more.get("key", ""),
        mark=more.get("mark"),
        input_tokens=tokens,
        output_tokens=out,
        max_tokens=most,
    )


def account(*quotas: Quota, wall: float = 0.0, seed: int = 0, **options: object) -> Account:
    return Account(quotas, Options(**options), wall=wall, seed=seed)  # type: ignore[arg-type]


def reasons(used: Account, at: list[float], asked: Asked | None = None) -> list[Reason | None]:
    return [used.arrive(asked or call(), ticks(moment)).reason for moment in at]


def test_the_first_beyond_the_amount_is_refused_and_is_let_in_a_window_later() -> None:
    used = account(Quota.rolling("requests", 2))
    assert reasons(used, [0, 1, 59.999999, 60]) == [None, None, Reason.RATE, None]
    assert [refusal.at for refusal in used.ledger.refused] == [59.999999]
    assert used.ledger.busiest("requests", 60) == 2


def test_refused_calls_count_only_where_they_do() -> None:
    assert reasons(account(Quota.rolling("requests", 1)), [0, 30, 60]) == [None, Reason.RATE, None]
    strict = account(Quota.rolling("requests", 1), rejected_count=True)
    assert reasons(strict, [0, 30, 60, 120]) == [None, Reason.RATE, Reason.RATE, None]


def test_a_refused_call_takes_nothing_of_the_other_quotas() -> None:
    used = account(Quota.rolling("requests", 1), Quota.rolling("input_tokens", 10))
    assert reasons(used, [0, 1], call(4)) == [None, Reason.RATE]
    assert [one.left for one in used.standings("", ticks(1), {})] == [0, 6]


def test_charged_at_admission_is_the_larger_of_the_two_and_nothing_comes_back() -> None:
    used = account(Quota.rolling("tokens", 100), charge="admission")
    verdict = used.arrive(call(10, out=5, most=60), 0)
    used.finish(call(10, out=5, most=60), verdict, 1)
    assert used.standings("", 1, {})[0].left == 40
    assert used.arrive(call(41, most=3), 2).reason is Reason.RATE
    assert used.arrive(call(40, most=3), 2).reason is None


def test_actual_output_counts_when_it_is_there_even_beyond_the_quota() -> None:
    used = account(Quota.rolling("output_tokens", 10), Quota.rolling("input_tokens", 100))
    first, second = used.arrive(call(5, out=8), 0), used.arrive(call(5, out=8), 0)
    used.finish(call(5, out=8), first, ticks(1))
    used.finish(call(5, out=8), second, ticks(2))
    assert [one.left for one in used.standings("", ticks(2), {})] == [-6, 90]
    assert reasons(used, [60.999999, 61]) == [Reason.RATE, None]
    assert [(bill.input_tokens, bill.output_tokens) for bill in used.ledger.bills] == [(5, 8), (5, 8)]


def test_nothing_is_generated_when_no_output_is_left() -> None:
    used = account(Quota.rolling("output_tokens", 8))
    used.finish(call(out=8), used.arrive(call(out=8), 0), ticks(1))
    assert reasons(used, [2, 61]) == [Reason.RATE, None]


def test_several_quotas_are_violated_at_once_and_the_longest_gives_the_reason() -> None:
    used = account(Quota.rolling("requests", 1), Quota.day("requests", 1))
    used.arrive(call(), 0)
    verdict = used.arrive(call(), ticks(1))
    assert verdict.reason is Reason.DAY
    assert [(one.quota.shape, one.wait) for one in verdict.violated] == [
        ("rolling", ticks(59)),
        ("day", ticks(86_399)),
    ]


def test_what_can_never_fit_is_too_large_and_a_quota_of_nothing_is_no_access() -> None:
    assert reasons(account(Quota.rolling("input_tokens", 5)), [0], call(6)) == [Reason.TOO_LARGE]
    assert reasons(account(Quota.bucket("requests", 0)), [0]) == [Reason.NOT_ON_TIER]


def test_calls_under_way_are_freed_by_their_end() -> None:
    used = account(Quota.concurrent(1))
    verdict = used.arrive(call(), 0)
    assert used.arrive(call(), 1).reason is Reason.CONCURRENCY
    used.finish(call(), verdict, 2)
    assert used.arrive(call(), 2).reason is None


def test_counters_per_model_or_key() -> None:
    by_model = account(Quota.rolling("requests", 1), scope="model")
    verdicts = [by_model.arrive(call(model=name), 0).reason for name in ("a", "b", "a")]
    assert verdicts == [None, None, Reason.RATE]
    by_key = account(Quota.rolling("requests", 1), scope="key")
    assert [by_key.arrive(call(key=name), 0).reason for name in ("a", "b", "b")] == [None, None, Reason.RATE]


def test_a_changed_limit_holds_from_its_time_also_for_counters_not_yet_there() -> None:
    change = Change(10, "requests per minute", 1)
    used = account(Quota.rolling("requests", 3), changes=(change,), scope="model")
    asked = call(model="early")
    assert reasons(used, [9, 9.5, 10], asked) == [None, None, Reason.RATE]
    assert reasons(used, [11, 11], call(model="late")) == [None, Reason.RATE]
    with pytest.raises(ValueError, match="not a quota"):
        account(Quota.rolling("requests", 3), changes=(Change(0, "tokens per minute", 1),))


def test_trouble_refuses_everything_for_its_time_and_counts_nothing() -> None:
    storm = Trouble(Reason.OVERLOAD, 5, 6)
    used = account(Quota.rolling("requests", 2), troubles=(storm,))
    assert reasons(used, [4, 5, 5.5, 6, 7]) == [None, Reason.OVERLOAD, Reason.OVERLOAD, None, Reason.RATE]


def test_foreign_calls_use_the_same_quota_and_are_told_apart() -> None:
    others = Foreign(times=(1, 2, 50), input_tokens=30)
    used = account(Quota.rolling("input_tokens", 100), foreign=(others,))
    assert reasons(used, [3, 4, 62], call(40)) == [None, Reason.RATE, None]
    assert [(one.at, one.foreign) for one in used.ledger.arrivals] == [
        (1, True),
        (2, True),
        (3, False),
        (4, False),
        (50, True),
        (62, False),
    ]
    assert [one.at for one in used.ledger.refusals if one.foreign] == [50]
    assert [one.at for one in used.ledger.refused] == [4]
    assert used.ledger.bills == []


def test_foreign_calls_at_a_rate_are_drawn_from_the_seed() -> None:
    def times(seed: int) -> list[float]:
        used = account(
            Quota.rolling("requests", 10_000), foreign=(Foreign(per_second=2, start=10, end=110),), seed=seed
        )
        used.advance(ticks(200))
        return [arrival.at for arrival in used.ledger.arrivals]

    assert times(1) == times(1) != times(2)
    assert all(10 <= at < 110 for at in times(1))
    assert 150 < len(times(1)) < 250


def test_a_foreign_call_is_under_way_for_its_time() -> None:
    used = account(Quota.concurrent(1), foreign=(Foreign(times=(1,), seconds=5),))
    assert reasons(used, [0.5]) == [None]
    used = account(Quota.concurrent(1), foreign=(Foreign(times=(1,), seconds=5),))
    assert reasons(used, [2, 6]) == [Reason.CONCURRENCY, None]


def test_sharp_growth_is_refused_and_gradual_growth_is_not() -> None:
    rule = Acceleration(over=10, factor=2, free=3)
    used = account(Quota.rolling("requests", 1000), acceleration=rule)
    assert reasons(used, [0, 1, 2, 3]) == [None, None, None, Reason.ACCELERATION]
    six = [12.5 + step / 10 for step in range(7)]
    assert reasons(used, six) == [None] * 6 + [Reason.ACCELERATION]


def test_the_providers_calendar_may_be_ahead() -> None:
    used = account(Quota.day("requests", 1), wall=86_400 - 100, skew=40.0)
    assert reasons(used, [0, 59.999999, 60]) == [None, Reason.DAY, None]


def test_the_ledger_finds_what_was_paid_twice() -> None:
    used = account(Quota.rolling("requests", 10))
    for mark in ("a", "b", "a", "a"):
        asked = call(mark=mark)
        used.finish(asked, used.arrive(asked, 0), 0)
    assert used.ledger.paid_again() == {"a": 2}
    assert len(used.ledger.bills_of("b")) == 1
    assert len(used.ledger.unknown) == 4


def test_the_busiest_stretch_is_found_wherever_it_is() -> None:
    used = account(Quota.rolling("requests", 100, per=1))
    reasons(used, [0, 5, 9.9, 10, 10.1, 14.9, 30])
    assert (
        used.ledger.busiest("requests", 5) == 3
    )  # 9.9 to 14.9 is a whole stretch: its end is the next one's
    assert used.ledger.busiest("requests", 5.000001) == 4
    assert used.ledger.busiest("requests", 0.1) == 1
