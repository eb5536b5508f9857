from __future__ import annotations

from tidemill.worker.pace import AHEAD_AT_MOST, Pace


def measured(mean: float, *, trip: float = 0.001, concurrency: int = 10) -> Pace:
    pace = Pace(concurrency)
    for _ in range(50):
        pace.spent += mean * 100
        pace.ended += 100
        pace.trip_took(trip)
    return pace


def test_nothing_is_claimed_ahead_before_anything_was_measured() -> None:
    assert Pace(10).ahead == 0


def test_about_twenty_milliseconds_of_jobs_are_claimed_ahead() -> None:
    assert 195 <= measured(0.001).ahead <= 200


def test_long_jobs_are_never_claimed_ahead() -> None:
    assert measured(0.06).ahead == 0


def test_a_slow_store_is_hidden_by_a_longer_buffer() -> None:
    assert measured(0.001, trip=0.05).ahead > 900


def test_the_buffer_is_bounded() -> None:
    assert measured(0.0).ahead == AHEAD_AT_MOST


def test_a_stall_forgets_what_was_measured() -> None:
    pace = measured(0.001)
    pace.stalled()
    assert pace.ahead == 0
