"""The providers of the demo: simulators of Gemini whose minute takes two seconds."""

from __future__ import annotations

from tidemill.testing.providers import Clock, Gemini, Options, Provider, Quota, Replies
from tidemill_apps.common.providers.account import Account
from tidemill_apps.common.simulation import at_simulator
from tidemill_apps.demo.midnight import ZONE, BeforeMidnight

SCALE = 30.0
A_MINUTE = 60.0 / SCALE
PER_MINUTE, PER_DAY, EMBEDDINGS_PER_MINUTE = 5, 18, 10
BELIEVED = 20
"""What the application is told of the day: too much, so that it learns by a refusal that the day is over."""
LATENCY, LONG_LATENCY = (2.0, 4.0), (12.0, 15.0)
"""Of their own seconds; the long one leaves time for an edit in the middle of a call."""
DIMENSIONS = 768
AHEAD = 0.3
"""Seconds of ours by which its day turns before the applications' clock says so."""


def free_tier(clock: BeforeMidnight, replies: Replies) -> Provider:
    """Its calendar runs as fast as its minutes, and comes to midnight when the demo's clock does."""
    until = clock.midnight - clock.wall() - AHEAD
    return Provider(
        Gemini(),
        [Quota.rolling("requests", PER_MINUTE), Quota.day("requests", PER_DAY, zone=ZONE)],
        Options(latency=LATENCY),
        clock=clock,
        scale=SCALE,
        start=clock.midnight - until * SCALE,
        replies=replies,
    )


def embeddings_tier(clock: Clock) -> Provider:
    return Provider(
        Gemini(),
        [Quota.rolling("requests", EMBEDDINGS_PER_MINUTE)],
        Options(latency=LONG_LATENCY),
        clock=clock,
        scale=SCALE,
    )


def account_at(url: str) -> Account:
    return at_simulator(Account(dimensions=DIMENSIONS), url)
