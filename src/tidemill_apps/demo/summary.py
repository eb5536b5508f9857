"""What was promised beside what the simulator's books say."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.testing.providers import Ledger, Reason
from tidemill_apps.demo.articles import ArticlesTold
from tidemill_apps.demo.music import MusicTold
from tidemill_apps.demo.provider import A_MINUTE, LONG_LATENCY, PER_MINUTE, SCALE

Promise = tuple[bool, str]
"""Whether it was kept, and what."""


def music_promises(told: MusicTold) -> Iterator[Promise]:
    books, preview = told.books, told.preview
    yield (
        told.completed == told.songs > 0,
        f"{told.completed} of {told.songs} songs are described and have a vector",
    )
    yield _paid(books, len(books.bills), told.minimum)
    off = abs(told.seconds - (preview.seconds or 0.0))
    foreseen = f"{preview.calls} calls in {preview.seconds or 0:.1f} s"
    yield (
        preview.calls == told.first and off <= A_MINUTE,
        f"the dry run said {foreseen}, and it took {told.first} in {told.seconds:.1f} s",
    )
    most = books.busiest("requests", 60)
    yield 0 < most <= PER_MINUTE, f"never more than {most} requests in a minute that allows {PER_MINUTE}"
    reasons = [refusal.reason for refusal in books.refused]
    yield (
        reasons == [Reason.DAY],
        f"refused {len(reasons)}: the call by which it was learned that the day's quota was gone",
    )
    yield told.closed > 0, f"all waited {told.closed:.1f} s for the next day, and went on by themselves"
    yield (
        told.like > 0 and told.spoken_of > 0,
        f"{told.like} songs were found by another song, and {told.spoken_of} by a text",
    )


def articles_promises(told: ArticlesTold) -> Iterator[Promise]:
    yield (
        told.completed == told.articles > 0,
        f"{told.completed} of {told.articles} articles are embedded, many in one call",
    )
    yield _paid(told.books, told.calls, told.minimum)
    yield not told.books.refused, f"refused {len(told.books.refused)}"
    call = LONG_LATENCY[0] / SCALE
    yield (
        told.save < call / 4,
        f"half of all saves take {told.save * 1000:.0f} ms or less, a call {call * 1000:.0f} ms or more",
    )
    yield told.again, "the article that was edited in the middle of a call is found by its newest text"
    yield told.found == told.questions > 0, f"{told.found} of {told.questions} questions found their article"
    yield (
        told.hidden and not told.hiding,
        f"the article that was hidden is found no more, and {told.hiding} calls were made for that",
    )


def _paid(books: Ledger, calls: int, minimum: int) -> Promise:
    again = sum(books.paid_again().values())
    return (
        calls == minimum and not again,
        f"{calls} calls were billed and {minimum} needed; {again} paid twice",
    )
