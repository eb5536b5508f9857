"""Conformance tests for `find` by text, payload field and time. `core.filters.matches_filter` defines the
correct result."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.contract.jobs import Admission, RejectedArrival
from tidemill.core.filters import Filter, matches_filter
from tidemill.core.jobs import DEFAULT_PRIORITY, Error, NewJob
from tidemill.core.operator_changes import ArchiveJobs, CancelJobs, DeleteJobs, ReprioritiseJobs
from tidemill.core.outcomes import Cancellation, FinalFailure, RetryLater
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, Arrive, StoreDriver, held_job, ids, new_job
from tidemill.testing.conformance.reader import find_everything


async def find_all(driver: StoreDriver, **fields: Any) -> list[str]:
    """Returns the sorted ids of all jobs that match the filter `fields`. Asserts that a search in small pages
    (`scan_limit=3`) finds the same jobs."""
    met = ids(await find_everything(driver, Filter(**fields)))
    assert ids(await find_everything(driver, Filter(**fields), scan_limit=3)) == met
    return sorted(met)


class TestTextSearch:
    async def test_r2_text_is_searched_in_all_readable_fields(self, driver: StoreDriver) -> None:
        await driver.add(
            new_job("task", task="an apple a day"),
            new_job("key", key="apple"),
            new_job("tag", tags=("pear", "apples")),
            new_job("payload", payload={"fruit": ["pineapple"]}),
            new_job("id-apple", payload="nothing"),
        )
        await driver.add(*["note", "reason", "message", "type", "traceback"], queue="apple queue")
        jobs = {job.id: job for job in await driver.take(shares=(("apple queue", 9),))}
        await driver.settle(jobs["reason"], Cancellation("no apple"))
        await driver.settle(jobs["message"], FinalFailure(Error("ValueError", "bad apple")))
        await driver.settle(jobs["type"], FinalFailure(Error("AppleError", "oops")))
        await driver.settle(jobs["traceback"], FinalFailure(Error("ValueError", "oops", "apple.py")))
        await driver.beat(held_job(jobs["note"], note="an apple"))
        expected = ["key", "message", "note", "payload", "reason", "tag", "task", "type"]
        assert await find_all(driver, text="apple") == expected

    @pytest.mark.parametrize("text", ["海", "上升", "升明月", "海上升明月", "月 s", "ß", "é", "🌊"])
    async def test_r2_substrings_of_any_script(self, driver: StoreDriver, text: str) -> None:
        await driver.add(
            new_job("poem", payload={"title": "海上升明月 straße é 🌊"}), new_job("other", payload="明上")
        )
        assert await find_all(driver, text=text) == ["poem"]

    async def test_r2_only_a_to_z_match_in_either_case(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", payload="Straße ÄRGER"), new_job("b", task="FETCH", tags=("Night",)))
        assert await find_all(driver, text="STRAßE") == ["a"]
        assert await find_all(driver, text="ärger") == []
        assert await find_all(driver, text="Ärger") == ["a"]
        assert await find_all(driver, text="fEtCh") == ["b"]
        assert await find_all(driver, text="nIGHT") == ["b"]

    @pytest.mark.parametrize(
        "text", ['"', "'", "\\", "\n", "\t", "\x1f", "%", "_", "*", "?", "[a]", "{", "/", "\\u", "'; --"]
    )
    async def test_r2_no_character_is_a_wildcard(self, driver: StoreDriver, text: str) -> None:
        await driver.add(new_job("payload", payload=f"it has {text} inside"))
        await driver.add(new_job("tag", payload=0, tags=(f"a{text}b",)), new_job("neither", payload="and"))
        await driver.add("error", queue="p")
        await driver.settle(await driver.take_one(shares=(("p", 1),)), FinalFailure(Error("E", f"x{text}y")))
        assert await find_all(driver, text=f"has {text} in") == ["payload"]
        assert await find_all(driver, text=f"a{text}b") == ["tag"]
        assert await find_all(driver, text=f"x{text}y") == ["error"]

    async def test_r2_escaped_payloads_match(self, driver: StoreDriver) -> None:
        """Text is found even if another program escaped more characters in the payload than necessary."""
        escaped = rb'{"title": "\u6d77\u4e0a", "path": "a\/b"}'
        await driver.add(NewJob(id="a", task="task", payload=escaped), "b")
        assert await find_all(driver, text="海上") == ["a"]
        assert await find_all(driver, text="a/b") == ["a"]
        assert await find_all(driver, fields=(("title", "海上"), ("path", "a/b"))) == ["a"]

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
    async def test_r2_escape_characters_do_not_match(
        self, driver: StoreDriver, text: str, matched: list[str]
    ) -> None:
        """The search sees decoded text, not JSON escapes. A payload with `line`, a line break and `feed` does
        not match `nfeed`."""
        await driver.add(new_job("a", payload="line\nfeed tab\there"))
        other = rb'{"some key": ["\u4e0a\n", "back\\slash", 0.10, null]}'
        await driver.add(NewJob(id="b", task="task", payload=other))
        assert await find_all(driver, text=text) == matched

    async def test_r2_payloads_that_are_not_json_do_not_stop_a_search(
        self, driver: StoreDriver, arrive: Arrive
    ) -> None:
        await driver.add(new_job("a", payload="oak"))
        await arrive(driver.store, "bad", "task", rb"{oak \u, ", b"{}")
        (arrival,) = await driver.store.arrivals(1)
        await driver.store.admit([Admission(arrival, "q", RejectedArrival(queue="q", error=SAMPLE_ERROR))])
        assert await find_all(driver, text="oak") == ["a", "bad"]
        assert await find_all(driver, text="no such text") == []
        assert await find_all(driver, fields=(("of", "oak"),)) == ["a"]


class TestFieldSearch:
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
        self, driver: StoreDriver, path: str, value: str
    ) -> None:
        payload = (
            '{"feed": {"host": "a.example", "tags": ["x", "y"]}, "items": [{"id": 1}, {"id": 2, "deep": '
            '[{"n": 7}]}], "rows": [[{"n": 5}]], "count": 3, "ratio": 1e3, "flag": true, "nothing": null, '
            '"标题": "海上", "text": "a \\"quoted\\" \\\\ line\\nand more", "empty": "", '
            '"number in text": "12.5"}'
        )
        await driver.add(NewJob(id="a", task="task", payload=payload.encode()), "b")
        assert await find_all(driver, fields=((path, value),)) == ["a"]

    async def test_r2_fields_must_all_match_and_exactly(self, driver: StoreDriver) -> None:
        await driver.add(NewJob(id="a", task="task", payload=b'{"x": {"y": "One"}, "n": 1}'))
        assert await find_all(driver, fields=(("x.y", "One"), ("n", "1"))) == ["a"]
        for fields in [
            ("x.y", "one"),
            ("x.y", "On"),
            ("y", "One"),
            ("x", "One"),
            ("n", "1.0"),
            ("x.y.z", ""),
        ]:
            assert await find_all(driver, fields=(("n", "1"), fields)) == []

    async def test_r2_deep_nesting_does_not_stop_a_search(self, driver: StoreDriver) -> None:
        deep = b'{"of":' + b"[" * 900 + b'"deep"' + b"]" * 900 + b"}"
        await driver.add(NewJob(id="deep", task="task", payload=deep), new_job("a", payload="deep"))
        assert "a" in await find_all(driver, fields=(("of", "deep"),))


class TestTimeFilters:
    async def test_r2_times_of_creation_due_and_end(self, driver: StoreDriver) -> None:
        start = driver.clock.wall()
        await driver.ended("a")
        await driver.add(new_job("later", delay=50.0))
        driver.clock.advance(10.0)
        await driver.ended("b")
        await driver.add("ready")
        inside = {"since": start + 10, "until": start + 50}
        assert await find_all(driver, **inside) == ["b", "ready"]
        assert await find_all(driver, time="due", **inside) == ["b", "ready"]
        assert await find_all(driver, time="due", since=start + 50) == ["later"]
        assert await find_all(driver, time="finished", **inside) == ["b"]
        assert await find_all(driver, time="finished", until=start + 10) == ["a"]
        assert await find_all(driver, time="finished", since=start, states=(State.READY, State.DONE)) == [
            "a",
            "b",
        ]
        assert await find_all(driver, time="finished", since=start, states=(State.READY,)) == []
        assert await find_all(driver, time="finished") == ["a", "b", "later", "ready"]


class TestMatchEquivalence:
    """For every filter, `find` and `amend` select the same jobs as `matches_filter`, the Python function that
    defines which jobs match."""

    @pytest.mark.parametrize("extra_jobs", [0, 60])
    async def test_r2_find_and_amend_match_the_reference(self, driver: StoreDriver, extra_jobs: int) -> None:
        await self.insert_varied_jobs(driver, extra_jobs)
        every = await find_everything(driver, Filter(), 1000)
        assert {job.state for job in every} == set(State)
        now = driver.clock.wall()
        states = [None, (), (State.READY,), (State.FAILED, State.RUNNING), (State.SCHEDULED,), tuple(State)]
        options: list[dict[str, Any]] = [
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
                for more in options:
                    job_filter = Filter(queue=queue, states=some, **more)
                    expected = [job.id for job in every if matches_filter(job_filter, job)]
                    assert ids(await find_everything(driver, job_filter, 7)) == expected, job_filter
                    amended = await driver.store.amend(job_filter, ReprioritiseJobs(DEFAULT_PRIORITY), 3)
                    assert {*amended.changed, *amended.unchanged} == set(expected[-3:]), job_filter

    async def insert_varied_jobs(self, driver: StoreDriver, extra_jobs: int) -> None:
        await driver.add(*[new_job(f"crowd-{n}", payload=n, key="k") for n in range(extra_jobs)], queue="p")
        await driver.add(
            "done", new_job("retrying", tags=("x",)), new_job("failed", payload="好", task="other")
        )
        for job, outcome in zip(
            await driver.take(),
            (None, RetryLater(99.0, SAMPLE_ERROR), FinalFailure(SAMPLE_ERROR)),
            strict=True,
        ):
            await driver.settle(job, outcome)
        driver.clock.advance(10.0)
        await driver.add("running", new_job("held", unique=Unique("u", "rerun"), key="k"))
        await driver.take()
        await driver.add(new_job("waiting", unique=Unique("u", "rerun"), payload="好"))
        await driver.add(
            "cancelled", "archived", "ready", new_job("scheduled", delay=9.0), new_job("tagged", tags=("x",))
        )
        await driver.amend(CancelJobs(), "cancelled")
        await driver.amend(ArchiveJobs(), "archived")


class TestInvalidFilters:
    @pytest.mark.parametrize(
        "job_filter",
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
    async def test_r2_j70_an_invalid_filter_is_refused(self, driver: StoreDriver, job_filter: Filter) -> None:
        await driver.add("a")
        with pytest.raises(ConfigurationError):
            await driver.store.find(job_filter)
        with pytest.raises(ConfigurationError):
            await driver.store.amend(job_filter, DeleteJobs())
        assert await driver.state("a") is State.READY

    async def test_j70_ids_and_the_rest_of_the_filter_must_both_match(self, driver: StoreDriver) -> None:
        await driver.add(
            new_job("a", payload="oak"), new_job("b", payload="elm"), new_job("c", payload="oak")
        )
        await driver.take(limit=1)
        job_filter = Filter(ids=("a", "b", "c"), states=(State.READY,), text="oak")
        amended = await driver.store.amend(job_filter, CancelJobs())
        assert (amended.changed, amended.unchanged) == (("c",), ())
