"""A promise that was not kept is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidemill.testing.providers import Arrival, Bill, Ledger, Reason, Refusal
from tidemill_apps.demo.articles import ArticlesTold
from tidemill_apps.demo.music import MusicTold
from tidemill_apps.demo.summary import articles_promises, music_promises
from tidemill_apps.music.planning import Preview


def refusal(reason: Reason) -> Refusal:
    return Refusal(at=1.0, mark="a", scope="", reason=reason, quotas=(), foreign=False)


def arrival(at: float) -> Arrival:
    return Arrival(at=at, mark="a", scope="", units={"requests": 1}, admitted=True, foreign=False)


def books(*marks: str, refusals: tuple[Reason, ...] = ()) -> Ledger:
    bills = [bill(mark) for mark in marks]
    return Ledger(
        [arrival(100.0 * n) for n, _ in enumerate(marks)], [refusal(one) for one in refusals], bills
    )


def bill(mark: str) -> Bill:
    values: dict[str, Any] = {"input_tokens": 1, "output_tokens": 1}
    return Bill(at=1.0, arrived=1.0, mark=mark, scope="", kind="chat", model="any", **values)


PREVIEW = Preview(
    **dict.fromkeys(Preview.__struct_fields__) | {"calls": 2, "seconds": 5.0}  # type: ignore[arg-type]
)
MUSIC = MusicTold(
    books=books("a", "b", refusals=(Reason.DAY,)),
    minimum=2,
    songs=10,
    completed=10,
    preview=PREVIEW,
    first=2,
    seconds=5.5,
    closed=3.0,
    like=3,
    spoken_of=3,
)
ARTICLES = ArticlesTold(
    books=books("a", "b"),
    calls=2,
    minimum=2,
    articles=4,
    completed=4,
    save=0.02,
    again=True,
    questions=2,
    found=2,
    hidden=True,
    hiding=0,
)


def broken(promises: Any) -> int:
    return sum(not held for held, _ in promises)


def test_all_are_kept_when_all_went_well() -> None:
    assert broken(music_promises(MUSIC)) == 0
    assert broken(articles_promises(ARTICLES)) == 0


@pytest.mark.parametrize(
    "otherwise",
    [
        {"completed": 9},
        {"songs": 0, "completed": 0},
        {"minimum": 1},
        {"books": books("a", "a", refusals=(Reason.DAY,))},
        {"books": books("a", "b")},
        {"books": books("a", "b", refusals=(Reason.DAY, Reason.DAY))},
        {"books": books("a", "b", refusals=(Reason.RATE,))},
        {"first": 3},
        {"seconds": 7.5},
        {"closed": 0.0},
        {"like": 0},
        {"spoken_of": 0},
        {"books": Ledger([arrival(1.0)] * 6, [refusal(Reason.DAY)], [bill("a"), bill("b")])},
    ],
)
def test_what_went_wrong_with_songs_is_noticed(otherwise: dict[str, Any]) -> None:
    assert broken(music_promises(replace(MUSIC, **otherwise))) == 1


@pytest.mark.parametrize(
    "otherwise",
    [
        {"completed": 3},
        {"calls": 3},
        {"books": books("a", "a")},
        {"books": books("a", "b", refusals=(Reason.RATE,))},
        {"save": 0.2},
        {"again": False},
        {"found": 1},
        {"hidden": False},
        {"hiding": 1},
    ],
)
def test_what_went_wrong_with_articles_is_noticed(otherwise: dict[str, Any]) -> None:
    assert broken(articles_promises(replace(ARTICLES, **otherwise))) == 1
