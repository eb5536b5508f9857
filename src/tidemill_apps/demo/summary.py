"""Checks the results of the demo against the simulator's request log."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.testing.simulator import RefusalCause, RequestLog
from tidemill_apps.demo.articles import ArticlesDemoResult
from tidemill_apps.demo.environment import (
    LONG_LATENCY_SECONDS,
    MINUTE_SECONDS,
    REQUESTS_PER_MINUTE,
    TIME_SCALE,
)
from tidemill_apps.demo.music import MusicDemoResult

Check = tuple[bool, str]
"""Whether the check passed, and its sentence."""


def check_music(result: MusicDemoResult) -> Iterator[Check]:
    request_log, preview = result.request_log, result.preview
    yield (
        result.completed == result.songs > 0,
        f"{result.completed} of {result.songs} songs are described and have a vector",
    )
    yield _check_bills(request_log, len(request_log.bills), result.minimum)
    off = abs(result.seconds - (preview.seconds or 0.0))
    foreseen = f"{preview.calls} calls in {preview.seconds or 0:.1f} s"
    yield (
        preview.calls == result.first and off <= MINUTE_SECONDS,
        f"the dry run said {foreseen}, and it took {result.first} in {result.seconds:.1f} s",
    )
    most = request_log.max_units_in_window("requests", 60)
    yield (
        0 < most <= REQUESTS_PER_MINUTE,
        f"never more than {most} requests in a minute that allows {REQUESTS_PER_MINUTE}",
    )
    reasons = [refusal.reason for refusal in request_log.refused]
    yield (
        reasons == [RefusalCause.DAY],
        f"refused {len(reasons)}: the call by which it was learned that the day's quota was gone",
    )
    yield result.closed > 0, f"all waited {result.closed:.1f} s for the next day, and went on by themselves"
    yield (
        result.like > 0 and result.found_by_text > 0,
        f"{result.like} songs were found by another song, and {result.found_by_text} by a text",
    )


def check_articles(result: ArticlesDemoResult) -> Iterator[Check]:
    yield (
        result.completed == result.articles > 0,
        f"{result.completed} of {result.articles} articles are embedded, many in one call",
    )
    yield _check_bills(result.request_log, result.calls, result.minimum)
    yield not result.request_log.refused, f"refused {len(result.request_log.refused)}"
    call = LONG_LATENCY_SECONDS[0] / TIME_SCALE
    yield (
        result.save < call / 4,
        f"half of all saves take {result.save * 1000:.0f} ms or less, a call {call * 1000:.0f} ms or more",
    )
    yield result.again, "the article that was edited in the middle of a call is found by its newest text"
    yield (
        result.found == result.questions > 0,
        f"{result.found} of {result.questions} questions found their article",
    )
    yield (
        result.hidden and not result.hiding,
        f"the article that was hidden is found no more, and {result.hiding} calls were made for that",
    )


def _check_bills(request_log: RequestLog, calls: int, minimum: int) -> Check:
    again = sum(request_log.duplicate_payments().values())
    return (
        calls == minimum and not again,
        f"{calls} calls were billed and {minimum} needed; {again} paid twice",
    )
