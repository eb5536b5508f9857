from __future__ import annotations

from tidemill.worker.claim_planner import MAX_JOBS_AHEAD, ClaimAhead


def measured(mean: float, *, trip: float = 0.001, concurrency: int = 10) -> ClaimAhead:
    claim_ahead = ClaimAhead(concurrency)
    for _ in range(50):
        claim_ahead.run_seconds += mean * 100
        claim_ahead.run_count += 100
        claim_ahead.add_round_trip(trip)
    return claim_ahead


def test_nothing_is_claimed_ahead_before_anything_was_measured() -> None:
    assert ClaimAhead(10).ahead == 0


def test_about_twenty_milliseconds_of_jobs_are_claimed_ahead() -> None:
    assert 195 <= measured(0.001).ahead <= 200


def test_long_jobs_are_never_claimed_ahead() -> None:
    assert measured(0.06).ahead == 0


def test_a_slow_store_is_hidden_by_a_longer_buffer() -> None:
    assert measured(0.001, trip=0.05).ahead > 900


def test_the_buffer_is_bounded() -> None:
    assert measured(0.0).ahead == MAX_JOBS_AHEAD


def test_a_stall_forgets_the_measured_mean() -> None:
    claim_ahead = measured(0.001)
    claim_ahead.stalled()
    assert claim_ahead.ahead == 0
