"""The politeness score: what a site can count in its own log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.apps.feeds.feed_server import SeenRequest


class PolitenessScore(NamedTuple):
    """Every number is 0 for a polite reader, except `requests`.

    - `crowded`: requests less than a second after another to the same site.
    - `unconditional`: repeats without the validators that the site sent.
    - `wrong_validators`: requests with validators that the site did not send.
    - `early`: requests before the time that the site asked for.
    - `at_once`: feeds that were fetched twice at the same time."""

    requests: int
    crowded: int
    unconditional: int
    wrong_validators: int
    early: int
    at_once: int

    @property
    def is_polite(self) -> bool:
        return not any(self[1:])

    def table(self) -> str:
        rows = [f"| {name.replace('_', ' ')} | {value} |" for name, value in self._asdict().items()]
        return "\n".join(["| counted by the sites | |", "|---|---|", *rows])


def site_gaps(log: Sequence[SeenRequest]) -> list[float]:
    """Returns the seconds between each request and the one before it to the same site."""
    by_site: defaultdict[str, list[float]] = defaultdict(list)
    for seen in log:
        by_site[seen.host].append(seen.began)
    return [
        after - before
        for times in by_site.values()
        for before, after in zip(sorted(times), sorted(times)[1:], strict=False)
    ]


def score(
    log: Sequence[SeenRequest],
    *,
    site_seconds: float,
    wrong_validators: int,
    most_at_once: Mapping[str, int],
    not_before: Mapping[str, float],
) -> PolitenessScore:
    """Returns the score of a log. `not_before` has the seconds between two requests of a path that the site
    asked for."""
    seen_before: dict[str, SeenRequest] = {}
    unconditional = early = 0
    for seen in sorted(log, key=lambda one: one.began):
        before = seen_before.get(seen.path)
        if before is not None:
            unconditional += "if-none-match" not in seen.headers
            early += seen.began - before.began < not_before.get(seen.path, 0.0)
        seen_before[seen.path] = seen
    return PolitenessScore(
        requests=len(log),
        crowded=sum(gap < site_seconds for gap in site_gaps(log)),
        unconditional=unconditional,
        wrong_validators=wrong_validators,
        early=early,
        at_once=sum(most > 1 for most in most_at_once.values()),
    )
