"""A broken promise is reported."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tidemill.testing.simulator import BillEntry, RefusalCause, RefusalEntry, RequestEntry, RequestLog
from tidemill_apps.demo.__main__ import dashboard_commands, print_summary, try_command
from tidemill_apps.demo.articles import ArticlesDemoResult
from tidemill_apps.demo.music import MusicDemoResult
from tidemill_apps.demo.screen import DemoScreen
from tidemill_apps.demo.summary import check_articles, check_music
from tidemill_apps.music.preview import StartPreview


def refusal(reason: RefusalCause) -> RefusalEntry:
    return RefusalEntry(at=1.0, mark="a", scope="", reason=reason, quotas=(), external=False)


def arrival(at: float) -> RequestEntry:
    return RequestEntry(at=at, mark="a", scope="", units={"requests": 1}, admitted=True, external=False)


def build_log(*marks: str, refusals: tuple[RefusalCause, ...] = ()) -> RequestLog:
    bills = [bill(mark) for mark in marks]
    return RequestLog(
        [arrival(100.0 * n) for n, _ in enumerate(marks)], [refusal(one) for one in refusals], bills
    )


def bill(mark: str) -> BillEntry:
    values: dict[str, Any] = {"input_tokens": 1, "output_tokens": 1}
    return BillEntry(at=1.0, arrived=1.0, mark=mark, scope="", kind="chat", model="any", **values)


PREVIEW = StartPreview(
    **dict.fromkeys(StartPreview.__struct_fields__) | {"calls": 2, "seconds": 5.0}  # type: ignore[arg-type]
)
MUSIC = MusicDemoResult(
    request_log=build_log("a", "b", refusals=(RefusalCause.DAY,)),
    minimum=2,
    songs=10,
    completed=10,
    preview=PREVIEW,
    first=2,
    seconds=5.5,
    closed=3.0,
    like=3,
    found_by_text=3,
)
ARTICLES = ArticlesDemoResult(
    request_log=build_log("a", "b"),
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
    assert broken(check_music(MUSIC)) == 0
    assert broken(check_articles(ARTICLES)) == 0


@pytest.mark.parametrize(
    "otherwise",
    [
        {"completed": 9},
        {"songs": 0, "completed": 0},
        {"minimum": 1},
        {"request_log": build_log("a", "a", refusals=(RefusalCause.DAY,))},
        {"request_log": build_log("a", "b")},
        {"request_log": build_log("a", "b", refusals=(RefusalCause.DAY, RefusalCause.DAY))},
        {"request_log": build_log("a", "b", refusals=(RefusalCause.RATE,))},
        {"first": 3},
        {"seconds": 7.5},
        {"closed": 0.0},
        {"like": 0},
        {"found_by_text": 0},
        {"request_log": RequestLog([arrival(1.0)] * 6, [refusal(RefusalCause.DAY)], [bill("a"), bill("b")])},
    ],
)
def test_the_summary_finds_an_error_in_the_songs(otherwise: dict[str, Any]) -> None:
    assert broken(check_music(replace(MUSIC, **otherwise))) == 1


@pytest.mark.parametrize(
    "otherwise",
    [
        {"completed": 3},
        {"calls": 3},
        {"request_log": build_log("a", "a")},
        {"request_log": build_log("a", "b", refusals=(RefusalCause.RATE,))},
        {"save": 0.2},
        {"again": False},
        {"found": 1},
        {"hidden": False},
        {"hiding": 1},
    ],
)
def test_the_summary_finds_an_error_in_the_articles(otherwise: dict[str, Any]) -> None:
    assert broken(check_articles(replace(ARTICLES, **otherwise))) == 1


@pytest.mark.parametrize(("completed", "code"), [(10, 0), (9, 1)])
def test_a_report_has_every_promise_and_what_to_do_next(completed: int, code: int) -> None:
    """The output of `tidemill demo --json`."""
    checks = {"music": check_music(replace(MUSIC, completed=completed)), "articles": check_articles(ARTICLES)}
    printed, reports = StringIO(), list[dict[str, Any]]()
    assert print_summary(DemoScreen(Console(file=printed)), checks, reports.append) == code
    (report,) = reports
    assert printed.getvalue() == ""
    assert report["kept"] is (code == 0)
    assert [each["application"] for each in report["promises"]] == ["music"] * 7 + ["articles"] * 7
    assert [each["kept"] for each in report["promises"]].count(False) == code
    assert report["next"] == [*dashboard_commands(), try_command()]


def test_a_broken_promise_is_printed_and_is_the_exit_code() -> None:
    printed = StringIO()
    checks = {"articles": check_articles(replace(ARTICLES, found=1))}
    assert print_summary(DemoScreen(Console(file=printed)), checks, None) == 1
    assert "NOT articles: 1 of 2 questions found their article" in printed.getvalue()
