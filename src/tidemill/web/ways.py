"""The navigation: where one can go, and by which key."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.seam.roles import Role


@dataclass(frozen=True)
class Way:
    """`g` and its `key` lead there. `name` is that of its words, `page.{name}`, and of its mark."""

    name: str
    path: str
    key: str
    role: Role = Role.VIEWER


WAYS: tuple[tuple[str, tuple[Way, ...]], ...] = (
    (
        "see",
        (
            Way("overview", "/", "o"),
            Way("queues", "/queues", "q"),
            Way("jobs", "/jobs", "j"),
            Way("dead", "/dead-letters", "d"),
        ),
    ),
    (
        "plan",
        (
            Way("flows", "/flows", "f"),
            Way("schedules", "/schedules", "s"),
            Way("pools", "/pools", "p"),
            Way("plan", "/plan", "n"),
        ),
    ),
    (
        "run",
        (
            Way("workers", "/workers", "w"),
            Way("alerts", "/alerts", "l"),
            Way("settings", "/settings", "t"),
            Way("tokens", "/tokens", "k", Role.ADMIN),
            Way("audit", "/audit", "a", Role.ADMIN),
        ),
    ),
)
"""In groups, each with the name of its words, `ways.{name}`."""


def ways_of(role: Role) -> list[tuple[str, list[Way]]]:
    """Those that somebody of that role may go."""
    return [(group, [way for way in ways if role.may(way.role)]) for group, ways in WAYS]
