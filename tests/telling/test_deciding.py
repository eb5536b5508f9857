"""When people are told that something is wrong: once, not for nothing, and together (Q12)."""

from __future__ import annotations

from tidemill.telling.alerts.book import Book, Happened, Notice, Stage
from tidemill.telling.alerts.deciding import MOST_ALERTS, MOST_NOTICES, decide, worker_ends, worker_left
from tidemill.telling.alerts.rule import On, Rule

REPEAT, DIGEST = 3600.0, 0.0
RULES = {"long": Rule(on=On.QUEUE_LENGTH, above=1000, clear=500, lasting=60)}


class _Told:
    """A history: what was measured when, and what was said of it."""

    def __init__(self, rules: dict[str, Rule] = RULES, digest: float = DIGEST) -> None:
        self.book, self.rules, self.digest = Book(), rules, digest

    def at(self, now: float, **values: float) -> list[tuple[Happened, str]]:
        return [(one.what, one.alert.subject) for one in self.notices(now, **values)]

    def notices(self, now: float, **values: float) -> tuple[Notice, ...]:
        told = decide(self.book, self.rules, {"long": values}, now, repeat=REPEAT, digest=self.digest)
        self.book = told.book
        return told.notices


def test_it_is_raised_when_it_has_lasted_and_over_when_it_is_well_below() -> None:
    told = _Told()
    assert told.at(0, feeds=1001) == []
    assert told.at(59, feeds=1200) == []
    assert told.at(60, feeds=1100) == [(Happened.RAISED, "feeds")]
    assert told.at(75, feeds=900) == []  # below where it is raised, above where it is over
    assert told.at(90, feeds=1100) == []
    assert told.at(105, feeds=500) == [(Happened.OVER, "feeds")]


def test_what_does_not_last_is_not_told() -> None:
    told = _Told()
    assert [told.at(now, feeds=1500 if now % 60 < 45 else 10) for now in range(0, 600, 15)] == [[]] * 40
    assert _Told().at(0, feeds=1000) == []


def test_what_stays_is_told_again_no_more_often_than_is_set() -> None:
    told = _Told()
    said = {now: told.at(now, feeds=2000) for now in range(0, 3 * 3600, 60)}
    assert {now: what for now, what in said.items() if what} == {
        60: [(Happened.RAISED, "feeds")],
        60 + 3600: [(Happened.STILL, "feeds")],
        60 + 7200: [(Happened.STILL, "feeds")],
    }


def test_what_comes_and_goes_is_not_told_each_time() -> None:
    told = _Told({"long": Rule(on=On.QUEUE_LENGTH, above=1000)})
    said = [told.at(now, feeds=2000 if now % 120 == 0 else 0) for now in range(0, 3600, 60)]
    assert said[:2] == [[(Happened.RAISED, "feeds")], [(Happened.OVER, "feeds")]]
    assert not any(said[2:])
    assert told.at(3660, feeds=2000) == [(Happened.RAISED, "feeds")]


def test_each_queue_is_told_of_by_itself_and_one_that_is_gone_is_over() -> None:
    told = _Told({"long": Rule(on=On.QUEUE_LENGTH, above=1000)})
    assert told.at(0, feeds=2000, mail=5) == [(Happened.RAISED, "feeds")]
    assert told.at(10, mail=2000) == [(Happened.OVER, "feeds"), (Happened.RAISED, "mail")]


def test_what_happens_within_a_short_time_is_one_message() -> None:
    told = _Told({"long": Rule(on=On.QUEUE_LENGTH, above=1000)}, digest=30)
    assert told.at(0, feeds=2000) == []
    assert told.at(15, feeds=2000, mail=2000) == []
    assert told.at(30, feeds=2000, mail=2000) == [(Happened.RAISED, "feeds"), (Happened.RAISED, "mail")]
    assert told.at(45, feeds=2000, mail=2000) == []


def test_rules_of_another_program_are_left_alone() -> None:
    told = _Told({"long": Rule(on=On.QUEUE_LENGTH, above=1000)})
    told.at(0, feeds=2000)
    after = decide(told.book, {}, {}, 100, repeat=REPEAT, digest=DIGEST).book
    assert after.alerts == told.book.alerts
    assert [alert.stage for alert in after.alerts.values()] == [Stage.RAISED]


def test_a_worker_that_said_farewell_is_not_missed() -> None:
    book = worker_ends(Book(), {"a": 0.0, "b": 0.0}, 0, 600)
    book = worker_left(book, "a", 5)
    book = worker_ends(book, {"a": 5.0, "b": 5.0}, 6, 600)  # before it is off the list
    book = worker_ends(book, {}, 30, 600)
    assert book.gone == {"b": 30}
    assert worker_ends(book, {}, 629, 600).gone == {"b": 30}
    assert worker_ends(book, {}, 630, 600).gone == {}


def test_a_wall_clock_that_was_set_back_silences_nothing() -> None:
    told = _Told(digest=30)
    told.at(90_000, feeds=2000)
    told.at(90_061, feeds=2000)  # raised, and to be said with what else comes
    assert told.at(3_690, feeds=2000) == []
    assert told.at(3_720, feeds=2000) == [(Happened.RAISED, "feeds")]
    assert told.at(7_320, feeds=2000) == []
    assert told.at(7_350, feeds=2000) == [(Happened.STILL, "feeds")]
    waits = _Told()
    waits.at(90_000, feeds=2000)
    waits.at(3_600, feeds=2000)
    assert waits.at(3_660, feeds=2000) == [(Happened.RAISED, "feeds")]
    assert worker_ends(Book(gone={"a": 90_000.0}), {}, 3_600, 600).gone == {"a": 3_600}


def test_a_hundred_thousand_keys_that_close_at_once_fit_a_record() -> None:
    told = _Told({"long": Rule(on=On.QUEUE_LENGTH, above=0)})
    keys = {f"key {number}": 1.0 for number in range(5000)}
    assert len(told.at(0, **keys)) == MOST_NOTICES
    assert len(told.book.alerts) == MOST_ALERTS
    told.at(15, **dict.fromkeys(keys, 0.0))
    told.at(4000, **dict.fromkeys(keys, 0.0))
    assert told.book.alerts == {}
