"""find by text, payload field and time: what matches is `core.matching.matches`, however a store finds it."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

from typing import Any

import pytest

from tidemill.contract.jobs import Admission, Refused
from tidemill.core.changes import Archive, Cancel, Delete, Reprioritise
from tidemill.core.filters import Filter
from tidemill.core.job import DEFAULT_PRIORITY, Error, NewJob
from tidemill.core.matching import matches
from tidemill.core.outcomes import Cancelled, Fail, Retrying
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.driver import OOPS, Driver, holding, ids, new
from tidemill.testing.conformance.fixtures import Arrive
from tidemill.testing.conformance.reading import everything


async def found(drive: Driver, **wanted: Any) -> list[str]:
    """However many are looked at for a page."""
    met = ids(await everything(drive, Filter(**wanted)))
    assert ids(await everything(drive, Filter(**wanted), looks=3)) == met
    return sorted(met)


class TestText:
    async def test_r2_text_is_searched_wherever_a_person_reads_it(self, drive: Driver) -> None:
        await drive.add(
            new("task", task="an apple a day"),
            new("key", key="apple"),
            new("tag", tags=("pear", "apples")),
            new("payload", payload={"fruit": ["pineapple"]}),
            new("id-apple", payload="nothing"),
        )
        await drive.add(*["note", "reason", "message", "type", "traceback"], queue="apple queue")
        jobs = {job.id: job for job in await drive.take(shares=(("apple queue", 9),))}
        await drive.settle(jobs["reason"], Cancelled("no apple"))
        await drive.settle(jobs["message"], Fail(Error("ValueError", "bad apple")))
        await drive.settle(jobs["type"], Fail(Error("AppleError", "oops")))
        await drive.settle(jobs["traceback"], Fail(Error("ValueError", "oops", "apple.py")))
        await drive.beat(holding(jobs["note"], note="an apple"))
        expected = ["key", "message", "note", "payload", "reason", "tag", "task", "type"]
        assert await found(drive, text="apple") == expected

    @pytest.mark.parametrize("text", ["海", "上升", "升明月", "海上升明月", "月 s", "ß", "é", "🌊"])
    async def test_r2_substrings_of_any_script(self, drive: Driver, text: str) -> None:
        await drive.add(
            new("poem", payload={"title": "海上升明月 straße é 🌊"}), new("other", payload="明上")
        )
        assert await found(drive, text=text) == ["poem"]

    async def test_r2_only_a_to_z_match_in_either_case(self, drive: Driver) -> None:
        await drive.add(new("a", payload="Straße ÄRGER"), new("b", task="FETCH", tags=("Night",)))
        assert await found(drive, text="STRAßE") == ["a"]
        assert await found(drive, text="ärger") == []
        assert await found(drive, text="Ärger") == ["a"]
        assert await found(drive, text="fEtCh") == ["b"]
        assert await found(drive, text="nIGHT") == ["b"]

    @pytest.mark.parametrize(
        "text", ['"', "'", "\\", "\n", "\t", "\x1f", "%", "_", "*", "?", "[a]", "{", "/", "\\u", "'; --"]
    )
    async def test_r2_every_character_is_plain(self, drive: Driver, text: str) -> None:
        await drive.add(new("payload", payload=f"it has {text} inside"))
        await drive.add(new("tag", payload=0, tags=(f"a{text}b",)), new("neither", payload="and"))
        await drive.add("error", queue="p")
        await drive.settle(await drive.take_one(shares=(("p", 1),)), Fail(Error("E", f"x{text}y")))
        assert await found(drive, text=f"has {text} in") == ["payload"]
        assert await found(drive, text=f"a{text}b") == ["tag"]
        assert await found(drive, text=f"x{text}y") == ["error"]

    async def test_r2_however_a_payload_spells_it(self, drive: Driver) -> None:
        """Other programs escape more than they have to."""
        escaped = rb'{"title": "\u6d77\u4e0a", "path": "a\/b"}'
        await drive.add(NewJob(id="a", task="task", payload=escaped), "b")
        assert await found(drive, text="海上") == ["a"]
        assert await found(drive, text="a/b") == ["a"]
        assert await found(drive, fields=(("title", "海上"), ("path", "a/b"))) == ["a"]

    @pytest.mark.parametrize(
        ("text", "matched"),
        [
            ("nfeed", []),
            ("there", []),
            ("\\n", []),
            ("u4e0a", []),
            ("line\nfeed", ["a"]),
            ("\t", ["a"]),
            ("上\n", ["b"]),
            ("back\\slash", ["b"]),
            ("some key", ["b"]),
            ("0.10", ["b"]),
            ("null", ["b"]),
            ('":', []),
        ],
    )
    async def test_r2_what_an_escape_is_written_with_is_not_there(
        self, drive: Driver, text: str, matched: list[str]
    ) -> None:
        """A payload reads `line, feed`; that its text has `nfeed` in it is nobody's business."""
        await drive.add(new("a", payload="line\nfeed tab\there"))
        other = rb'{"some key": ["\u4e0a\n", "back\\slash", 0.10, null]}'
        await drive.add(NewJob(id="b", task="task", payload=other))
        assert await found(drive, text=text) == matched

    async def test_r2_what_is_no_json_ends_no_search(self, drive: Driver, arrive: Arrive) -> None:
        await drive.add(new("a", payload="oak"))
        await arrive(drive.store, "bad", "task", rb"{oak \u, ", b"{}")
        (arrival,) = await drive.store.arrivals(1)
        await drive.store.admit([Admission(arrival, "q", Refused(queue="q", error=OOPS))])
        assert await found(drive, text="oak") == ["a", "bad"]
        assert await found(drive, text="no such text") == []
        assert await found(drive, fields=(("of", "oak"),)) == ["a"]


class TestFields:
    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("feed.host", "a.example"),
            ("feed.tags", "x"),
            ("feed.tags", "y"),
            ("items.id", "2"),
            ("items.deep.n", "7"),
            ("rows.n", "5"),
            ("count", "3"),
            ("ratio", "1000.0"),
            ("flag", "true"),
            ("nothing", "null"),
            ("标题", "海上"),
            ("text", 'a "quoted" \\ line\nand more'),
            ("empty", ""),
            ("number in text", "12.5"),
        ],
    )
    async def test_r2_a_path_goes_through_objects_and_arrays(
        self, drive: Driver, path: str, value: str
    ) -> None:
        payload = (
            '{"feed": {"host": "a.example", "tags": ["x", "y"]}, "items": [{"id": 1}, {"id": 2, "deep": '
            '[{"n": 7}]}], "rows": [[{"n": 5}]], "count": 3, "ratio": 1e3, "flag": true, "nothing": null, '
            '"标题": "海上", "text": "a \\"quoted\\" \\\\ line\\nand more", "empty": "", '
            '"number in text": "12.5"}'
        )
        await drive.add(NewJob(id="a", task="task", payload=payload.encode()), "b")
        assert await found(drive, fields=((path, value),)) == ["a"]

    async def test_r2_fields_must_all_match_and_exactly(self, drive: Driver) -> None:
        await drive.add(NewJob(id="a", task="task", payload=b'{"x": {"y": "One"}, "n": 1}'))
        assert await found(drive, fields=(("x.y", "One"), ("n", "1"))) == ["a"]
        for wanted in [
            ("x.y", "one"),
            ("x.y", "On"),
            ("y", "One"),
            ("x", "One"),
            ("n", "1.0"),
            ("x.y.z", ""),
        ]:
            assert await found(drive, fields=(("n", "1"), wanted)) == []

    async def test_r2_deep_nesting_ends_no_search(self, drive: Driver) -> None:
        deep = b'{"of":' + b"[" * 900 + b'"deep"' + b"]" * 900 + b"}"
        await drive.add(NewJob(id="deep", task="task", payload=deep), new("a", payload="deep"))
        assert "a" in await found(drive, fields=(("of", "deep"),))


class TestTimes:
    async def test_r2_times_of_creation_due_and_end(self, drive: Driver) -> None:
        start = drive.clock.wall()
        await drive.ended("a")
        await drive.add(new("later", delay=50.0))
        drive.clock.advance(10.0)
        await drive.ended("b")
        await drive.add("ready")
        inside = {"since": start + 10, "until": start + 50}
        assert await found(drive, **inside) == ["b", "ready"]
        assert await found(drive, time="due", **inside) == ["b", "ready"]
        assert await found(drive, time="due", since=start + 50) == ["later"]
        assert await found(drive, time="finished", **inside) == ["b"]
        assert await found(drive, time="finished", until=start + 10) == ["a"]
        assert await found(drive, time="finished", since=start, states=(State.READY, State.DONE)) == [
            "a",
            "b",
        ]
        assert await found(drive, time="finished", since=start, states=(State.READY,)) == []
        assert await found(drive, time="finished") == ["a", "b", "later", "ready"]


class TestWhatMatches:
    """Every way a store may take to its jobs leads to the same ones."""

    @pytest.mark.parametrize("crowd", [0, 60])
    async def test_r2_find_and_amend_mean_what_matches_means(self, drive: Driver, crowd: int) -> None:
        await self.some_of_everything(drive, crowd)
        every = await everything(drive, Filter(), 1000)
        assert {job.state for job in every} == set(State)
        now = drive.clock.wall()
        states = [None, (), (State.READY,), (State.FAILED, State.RUNNING), (State.SCHEDULED,), tuple(State)]
        extra: list[dict[str, Any]] = [
            {},
            {"task": "other"},
            {"key": "k"},
            {"key": ""},
            {"tag": "x"},
            {"since": now - 5},
            {"until": now - 5, "time": "due"},
            {"since": now - 5, "time": "due"},
            {"since": now - 5, "time": "finished"},
            {"text": "o"},
            {"text": "好"},
            {"fields": (("of", "好"),)},
            {"ids": ("done", "ready", "crowd-3", "never")},
            {"id_prefix": "crowd-1"},
            {"id_prefix": "r"},
            {"id_prefix": "never", "ids": ("done",)},
        ]
        for queue in (None, "q", "p", "never"):
            for some in states:
                for more in extra:
                    wanted = Filter(queue=queue, states=some, **more)
                    expected = [job.id for job in every if matches(wanted, job)]
                    assert ids(await everything(drive, wanted, 7)) == expected, wanted
                    amended = await drive.store.amend(wanted, Reprioritise(DEFAULT_PRIORITY), 3)
                    assert {*amended.changed, *amended.unchanged} == set(expected[-3:]), wanted

    async def some_of_everything(self, drive: Driver, crowd: int) -> None:
        await drive.add(*[new(f"crowd-{n}", payload=n, key="k") for n in range(crowd)], queue="p")
        await drive.add("done", new("retrying", tags=("x",)), new("failed", payload="好", task="other"))
        for job, outcome in zip(await drive.take(), (None, Retrying(99.0, OOPS), Fail(OOPS)), strict=True):
            await drive.settle(job, outcome)
        drive.clock.advance(10.0)
        await drive.add("running", new("held", unique=Unique("u", "rerun"), key="k"))
        await drive.take()
        await drive.add(new("waiting", unique=Unique("u", "rerun"), payload="好"))
        await drive.add(
            "cancelled", "archived", "ready", new("scheduled", delay=9.0), new("tagged", tags=("x",))
        )
        await drive.amend(Cancel(), "cancelled")
        await drive.amend(Archive(), "archived")


class TestFilters:
    @pytest.mark.parametrize(
        "wanted",
        [
            Filter(text=""),
            Filter(text="a\0b"),
            Filter(text="\ud800"),
            Filter(queue="\ud800"),
            Filter(ids=("a", "\ud800")),
            Filter(id_prefix="\ud800"),
            Filter(since=float("nan")),
            Filter(fields=(("a..b", "x"),)),
            Filter(fields=(("", "x"),)),
            Filter(fields=(("a", "\ud800"),)),
            Filter(fields=("a.b",)),  # type: ignore[arg-type]
            Filter(fields=(("a", 3),)),  # type: ignore[arg-type]
            Filter(states="failed"),  # type: ignore[arg-type]
            Filter(states=("faild",)),  # type: ignore[arg-type]
            Filter(states=(State.FAILED, 3)),  # type: ignore[arg-type]
            Filter(ids="a"),  # type: ignore[arg-type]
            Filter(queue=3),  # type: ignore[arg-type]
            Filter(since="yesterday"),  # type: ignore[arg-type]
            Filter(time="begun"),  # type: ignore[arg-type]
            {"queue": "q"},
        ],
    )
    async def test_r2_j70_one_that_means_nothing_is_refused(self, drive: Driver, wanted: Filter) -> None:
        await drive.add("a")
        with pytest.raises(ConfigurationError):
            await drive.store.find(wanted)
        with pytest.raises(ConfigurationError):
            await drive.store.amend(wanted, Delete())
        assert await drive.state("a") is State.READY

    async def test_j70_a_change_hits_what_the_rest_of_the_filter_means_too(self, drive: Driver) -> None:
        await drive.add(new("a", payload="oak"), new("b", payload="elm"), new("c", payload="oak"))
        await drive.take(limit=1)
        wanted = Filter(ids=("a", "b", "c"), states=(State.READY,), text="oak")
        amended = await drive.store.amend(wanted, Cancel())
        assert (amended.changed, amended.unchanged) == (("c",), ())
