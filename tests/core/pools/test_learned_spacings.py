"""Learned spacings: how refusals lengthen them and successes shorten them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core import accounts, key_overrides, pool_statistics
from tidemill.core.accounts import Account, UnitDenial, UnitGrant
from tidemill.core.breaker import Breaker
from tidemill.core.external_usage import CallFacts
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.forecast.pool_outlook import CallCost, limit_seconds
from tidemill.core.learned_spacings import (
    MAX_SPACING_SECONDS,
    MAX_TRIAL_SECONDS,
    SPACING_LIFETIME_SECONDS,
    LearnedSpacing,
    LearnedSpacings,
    learn_from_refusal,
    learn_from_success,
)
from tidemill.core.limits import Limit, ShapeName
from tidemill.core.overrides import Override
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.reservations import UnitRequest
from tidemill.core.windows import Instant

SECOND = "requests per second"
POOL = PoolSettings(limits=(Limit.requests(1, per="second"), Limit.concurrent(5)), keyed=True)
START = 1_800_000_000.0
BARE = Refusal(reason=Reason.UNKNOWN, status=429)
STATED = Refusal(reason=Reason.RATE, retry_after=58.0, status=429)


def at(seconds: float) -> Instant:
    return Instant(START + seconds, 100.0 + seconds)


class Lesson:
    """The spacings of one key. Every call is claimed and answered at the same moment."""

    def __init__(self) -> None:
        self.now = 0.0
        self.spacings: LearnedSpacings = {}

    def refuse(self, refusal: Refusal = BARE, claimed: float | None = None) -> LearnedSpacing:
        self.now += 0.0 if claimed is not None else max(1.5, self.seconds)
        boot = 100.0 + (self.now if claimed is None else claimed)
        self.spacings = learn_from_refusal(POOL, POOL, self.spacings, refusal, boot, at(self.now))
        return self.spacings[SECOND]

    def succeed(self, after: float | None = None) -> LearnedSpacing | None:
        self.now += max(1.5, self.seconds) if after is None else after
        self.spacings = learn_from_success(POOL, self.spacings, 100.0 + self.now, at(self.now))
        return self.spacings.get(SECOND)

    @property
    def seconds(self) -> float:
        return self.spacings[SECOND].seconds if self.spacings else 1.0

    def confirm(self, seconds: float) -> None:
        """Learns a confirmed spacing of `seconds`, a power of 2."""
        while self.seconds < seconds:
            self.refuse()
        self.succeed()
        assert self.refuse().confirmed
        assert self.seconds == seconds


def test_each_refusal_doubles_a_trial_and_each_success_halves_it() -> None:
    lesson = Lesson()
    assert [lesson.refuse().seconds for _ in range(4)] == [2, 4, 8, 16]
    assert not lesson.spacings[SECOND].confirmed
    eased = [lesson.succeed() for _ in range(5)]
    assert [spacing and spacing.seconds for spacing in eased] == [8, 4, 2, 1, None]


def test_one_refusal_by_mistake_has_no_lasting_effect() -> None:
    lesson = Lesson()
    lesson.refuse()
    lesson.succeed()
    assert lesson.succeed() is None


def test_a_refusal_after_a_success_confirms_the_longer_spacing() -> None:
    lesson = Lesson()
    for _ in range(6):
        lesson.refuse()
    lesson.succeed()
    spacing = lesson.refuse()
    assert (spacing.seconds, spacing.confirmed) == (64, True)
    for _ in range(20):
        lesson.succeed()
    assert lesson.seconds == 64


def test_a_stated_reset_is_learned_from_the_second_refusal() -> None:
    lesson = Lesson()
    assert not lesson.refuse(STATED).is_longer, "the closure of the pool waits for the first one"
    lesson.succeed()
    spacing = lesson.refuse(STATED)
    assert spacing.confirmed
    assert spacing.seconds == pytest.approx(58 + 1.5 + 1), "from the success to the stated time, and a margin"


def test_a_stated_reset_that_two_successes_follow_is_forgotten() -> None:
    """A quota of an hour that other programs used up is no spacing."""
    lesson = Lesson()
    lesson.refuse(replace(STATED, retry_after=800.0))
    lesson.succeed()
    assert lesson.succeed() is None


def test_a_stated_wait_that_is_too_short_lengthens_the_spacing_too() -> None:
    lesson = Lesson()
    short = replace(STATED, retry_after=1.0)
    assert [lesson.refuse(short).seconds for _ in range(4)] == [1, 2, 4, 8]


def test_a_confirmed_spacing_is_tested_at_most_once_an_hour() -> None:
    lesson = Lesson()
    lesson.confirm(64)
    tested = lesson.succeed(after=3601)
    assert tested is not None
    assert (tested.seconds, tested.eased) == (48, True)
    lesson.succeed(after=3000)
    assert lesson.seconds == 48
    lesson.succeed(after=700)
    assert lesson.seconds == 36, "the provider allows more now"


def test_one_refusal_ends_a_test_and_the_next_comes_later() -> None:
    lesson = Lesson()
    lesson.confirm(64)
    lesson.succeed(after=3601)
    spacing = lesson.refuse(replace(STATED, retry_after=40.0))
    assert (spacing.seconds, spacing.confirmed, spacing.test_hours) == (64, True, 2)
    lesson.succeed(after=3601)
    assert lesson.seconds == 64
    lesson.succeed(after=3601)
    assert lesson.seconds == 48


def test_a_spacing_that_is_no_longer_than_the_window_is_dropped() -> None:
    lesson = Lesson()
    lesson.confirm(2)
    for _ in range(3):
        lesson.succeed(after=3601)
    assert lesson.spacings == {}


def test_a_confirmed_spacing_survives_one_refusal_and_doubles_after_two() -> None:
    lesson = Lesson()
    lesson.confirm(64)
    lesson.succeed(after=1000)
    assert lesson.refuse().seconds == 64
    assert lesson.refuse().seconds == 128
    assert lesson.spacings[SECOND].confirmed
    assert not lesson.refuse().confirmed, "the provider may be refusing everything"
    lesson.succeed()
    assert lesson.seconds == 128


def test_an_outage_leaves_no_long_spacing() -> None:
    lesson = Lesson()
    for _ in range(100):
        lesson.refuse()
    assert lesson.seconds == MAX_TRIAL_SECONDS
    begun = lesson.now
    while lesson.succeed():
        pass
    assert lesson.now - begun < 2 * MAX_TRIAL_SECONDS + 10


def test_calls_in_flight_are_one_refusal() -> None:
    lesson = Lesson()
    lesson.refuse()
    for _ in range(30):
        assert lesson.refuse(claimed=lesson.now - 1.0).seconds == 2
    lesson.spacings = learn_from_success(POOL, lesson.spacings, 100.0, at(lesson.now + 1))
    assert lesson.seconds == 2, "a call from before the refusal says nothing about it"


def test_refusals_of_unknown_calls_within_half_a_spacing_are_one() -> None:
    spacings: LearnedSpacings = {}
    for seconds in (0.0, 0.1, 0.5, 2.0):
        spacings = learn_from_refusal(POOL, POOL, spacings, BARE, None, at(seconds))
    assert spacings[SECOND].seconds == 4


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(reason=Reason.OVERLOAD),
        Refusal(reason=Reason.DAY_QUOTA),
        Refusal(reason=Reason.STATED, retry_after=5000.0),
        Refusal(reason=Reason.RATE, unit="tokens"),
    ],
)
def test_other_refusals_teach_no_spacing(refusal: Refusal) -> None:
    assert learn_from_refusal(POOL, POOL, {}, refusal, 100.0, at(0)) == {}


def test_a_limit_of_several_calls_learns_no_spacing() -> None:
    pool = PoolSettings(limits=(Limit.requests(2, per="second"), Limit.tokens(1, per="second")))
    assert learn_from_refusal(pool, pool, {}, BARE, 100.0, at(0)) == {}
    limited = replace(pool, limits=(Limit.requests(1, per="second"), pool.limits[1]))
    assert set(learn_from_refusal(pool, limited, {}, BARE, 100.0, at(0))) == {SECOND}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("bare", "stated", "success")), st.sampled_from((0.1, 1.5, 30.0, 700.0, 4000.0))
    ),
    max_size=60,
)


@given(EVENTS)
def test_a_spacing_stays_within_its_bounds(events: list[tuple[str, float]]) -> None:
    now, spacings, tests = 0.0, LearnedSpacings(), [-3600.0]
    for event, wait in events:
        now += wait
        before = spacings.get(SECOND)
        if event == "success":
            spacings = learn_from_success(POOL, spacings, 100.0 + now, at(now))
        else:
            refusal = BARE if event == "bare" else STATED
            spacings = learn_from_refusal(POOL, POOL, spacings, refusal, 100.0 + now, at(now))
        after = spacings.get(SECOND)
        seconds = 1.0 if after is None else after.seconds
        assert 1.0 <= seconds <= MAX_SPACING_SECONDS
        if before is not None and before.confirmed and seconds < before.seconds:
            assert now - tests[-1] >= 3600, "a confirmed spacing is shortened at most once an hour"
            tests.append(now)
        if event == "success" and before is None:
            assert after is None, "successes alone teach nothing"


def refused(account: Account, seconds: float, pool: PoolSettings = POOL) -> Account:
    seen = Observation(pool="site", key="a", refusal=BARE)
    call = CallFacts(claimed=100.0 + seconds)
    return accounts.record_observation(pool, account, seen, None, at(seconds), chance=0, running=1, call=call)


@pytest.mark.parametrize("shape", ["rolling", "paced", "bucket"])
def test_calls_keep_the_learned_distance_in_every_shape(shape: ShapeName) -> None:
    pool = PoolSettings(limits=(Limit.requests(1, per="second", shape=shape),), keyed=True)
    account = Account()
    for seconds in (0.0, 10.0, 20.0, 30.0, 40.0, 50.0):
        account = refused(account, seconds, pool)
    assert account.spacings[SECOND].seconds == 64
    account = replace(account, breaker=Breaker())
    first = accounts.request_units(pool, account, UnitRequest("a", {}, 5), at(1000))
    assert isinstance(first, UnitGrant)
    for seconds, fits in ((2.0, False), (60.0, False), (65.0, True)):
        answer = accounts.request_units(pool, first.account, UnitRequest("b", {}, 5), at(1000 + seconds))
        assert isinstance(answer, UnitGrant) is fits, seconds
    denied = accounts.request_units(pool, first.account, UnitRequest("b", {}, 5), at(1001))
    assert isinstance(denied, UnitDenial)
    assert 62 < denied.wait < 65


def test_a_forecast_counts_with_the_spacing() -> None:
    account = refused(Account(), 0)
    spaced = accounts.pool_with_learned_limits(POOL, account, at(1)).limits[0]
    call = CallCost(1.0, 0.0, 1.0, 1000.0)
    assert limit_seconds(spaced, 0.5, 11, call) == pytest.approx(10 * 2.5)


def test_a_shorter_spacing_frees_waiting_jobs_and_an_override_ends_it() -> None:
    account = refused(Account(), 0)
    assert not pool_statistics.is_at_rest(POOL, account, at(100))
    eased = accounts.record_success(POOL, account, at(10), 105.0)
    assert eased.state.revision > account.state.revision
    override = Override(changes=LimitChanges(amounts={SECOND: 1}), by="ann", since=START)
    assert key_overrides.set_key_override(account, override).spacings == {}
    assert accounts.open_account(account).spacings == {}
    later = at(SPACING_LIFETIME_SECONDS + 1)
    assert pool_statistics.is_at_rest(POOL, replace(account, breaker=Breaker()), later)


def test_a_spacing_for_another_amount_does_not_apply() -> None:
    account = refused(Account(), 0)
    more = PoolSettings(limits=(Limit.requests(5, per="second"), Limit.concurrent(5)), keyed=True)
    assert accounts.pool_with_learned_limits(more, account, at(1)) == more
    assert accounts.pool_with_learned_limits(POOL, account, at(1)) != POOL
