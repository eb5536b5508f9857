"""Finding jobs by text and field in any script, page by page, each job once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.inspect.support import ManualWorker
from tidemill import ConfigurationError, Filter, Inspector, State, Task, Tidemill
from tidemill.core.jobs import Error
from tidemill.core.outcomes import FinalFailure, Success
from tidemill.inspect import jobs as inspect_jobs

Refresh = Task[[str], None]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(inspect_jobs, "JOBS_PER_PAGE", 3)
    monkeypatch.setattr(inspect_jobs, "JOBS_PER_CHANGE", 2)
    return 3


async def find_ids(app_inspector: Inspector, wanted: Filter) -> set[str]:
    return {job.id async for job in app_inspector.each(wanted)}


async def test_chinese_payloads_are_found_by_any_part_of_their_text(
    app: Tidemill, app_inspector: Inspector
) -> None:
    @app.task(name="describe", queue="songs")
    async def describe(song: dict[str, str]) -> None: ...

    moon = await describe.enqueue({"title": "月亮代表我的心", "artist": "邓丽君"})
    other = await describe.enqueue({"title": "茉莉花", "artist": "民歌"})
    assert await find_ids(app_inspector, Filter(text="代表我")) == {moon.id}
    assert await find_ids(app_inspector, Filter(text="邓丽君")) == {moon.id}
    assert await find_ids(app_inspector, Filter(text="花")) == {other.id}
    assert await find_ids(app_inspector, Filter(text="月花")) == set()
    assert await find_ids(app_inspector, Filter(fields=(("song.artist", "民歌"),))) == {other.id}
    assert await find_ids(app_inspector, Filter(fields=(("song.artist", "民"),))) == set()
    assert (await app_inspector.job(moon.id)).payload == {
        "song": {"title": "月亮代表我的心", "artist": "邓丽君"}
    }


async def test_an_error_in_chinese_is_found_and_explained(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    job = await refresh.enqueue("a")
    await manual_worker.run(FinalFailure(Error("ProviderError", "余额不足。")))
    assert await find_ids(app_inspector, Filter(text="余额")) == {job.id}
    assert (await app_inspector.explain(job.id)).sentence.endswith(
        "attempt 1 ended with ProviderError: 余额不足。"
    )


async def test_task_tag_key_and_text_filters_combine(app_inspector: Inspector, refresh: Refresh) -> None:
    one = await refresh.using(tags=["slow"], key="a.example").enqueue("https://A.example/one")
    await refresh.using(tags=["slow"], key="b.example").enqueue("https://b.example/two")
    wanted = Filter(queue="feeds", task="refresh", tag="slow", key="a.example", text="a.EXAMPLE/ONE")
    assert await find_ids(app_inspector, wanted) == {one.id}


async def test_pages_continue_by_cursor(app_inspector: Inspector, refresh: Refresh) -> None:
    jobs = [(await refresh.enqueue(f"{number}")).id for number in range(5)]
    first = await app_inspector.find(Filter(), limit=3)
    rest = await app_inspector.find(Filter(), limit=3, cursor=first.cursor)
    assert [job.id for job in (*first.jobs, *rest.jobs)] == jobs[::-1]
    assert rest.cursor is None


async def test_each_yields_every_job_once_while_others_are_enqueued(
    app_inspector: Inspector, refresh: Refresh, small_pages: int
) -> None:
    jobs = [(await refresh.enqueue(f"{number}")).id for number in range(10)]
    met = []
    async for job in app_inspector.each(Filter(queue="feeds")):
        met.append(job.id)
        await refresh.enqueue("meanwhile")
    assert met == jobs[::-1]


async def test_each_continues_when_other_jobs_are_deleted(
    app_inspector: Inspector, refresh: Refresh, small_pages: int
) -> None:
    jobs = [(await refresh.enqueue(f"{number}")).id for number in range(10)]
    met = []
    async for job in app_inspector.each(Filter()):
        met.append(job.id)
        if len(met) == small_pages:
            await app_inspector.delete(jobs[-1])
            await app_inspector.delete(jobs[0])
    assert met == jobs[:0:-1]


async def test_count_is_exact_by_any_filter(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, small_pages: int
) -> None:
    for number in range(10):
        await refresh.using(tags=["odd"] if number % 2 else []).enqueue(f"{number}")
    await manual_worker.run(Success(), Success())
    assert (await app_inspector.count(Filter())).jobs == 10
    assert (await app_inspector.count(Filter(queue="feeds"))).jobs == 10
    assert (await app_inspector.count(Filter(queue="songs"))).jobs == 0
    assert (await app_inspector.count(Filter(states=(State.DONE, State.DONE)))).jobs == 2
    assert (await app_inspector.count(Filter(states=()))).jobs == 0
    assert (await app_inspector.count(Filter(queue="feeds", states=(State.READY, State.DONE)))).jobs == 10
    assert (await app_inspector.count(Filter(tag="odd"))).jobs == 5
    assert (await app_inspector.count(Filter(tag="odd", states=(State.READY,)))).jobs == 4


async def test_counting_by_queue_and_state_reads_no_jobs(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store with a million jobs must answer at once."""
    await refresh.enqueue("a")
    monkeypatch.setattr(inspect_jobs, "iterate_jobs", None)
    assert (await app_inspector.count(Filter(queue="feeds", states=(State.READY,)))).jobs == 1


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (Filter(text=""), "text: must not be empty"),
        (Filter(since=float("nan")), "since: must be a Unix time"),
        (Filter(until=datetime(2030, 1, 1, tzinfo=UTC)), r"until: .* write until=moment\.timestamp\(\)"),  # type: ignore[arg-type]
        (Filter(fields=(("a..b", "x"),)), "fields: 'a..b' is not a path"),
    ],
)
async def test_an_invalid_filter_is_refused_everywhere(
    app_inspector: Inspector, wanted: Filter, problem: str
) -> None:
    for refused in (app_inspector.find(wanted), app_inspector.count(wanted), app_inspector.delete(wanted)):
        with pytest.raises(ConfigurationError, match=problem):
            await refused
    with pytest.raises(ConfigurationError, match=problem):
        await find_ids(app_inspector, wanted)


@pytest.mark.parametrize("limit", [0, -1, 10_001])
async def test_the_page_size_is_limited(app_inspector: Inspector, limit: int) -> None:
    with pytest.raises(ConfigurationError, match="limit: must lie between 1 and 10000"):
        await app_inspector.find(Filter(), limit=limit)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (Filter(states=("faild",)), r"states: there is no state 'faild'; there are scheduled, ready"),  # type: ignore[arg-type]
        (Filter(states="failed"), r"states: must be a tuple, such as \(State.FAILED,\), is 'failed'"),  # type: ignore[arg-type]
        ({"queue": "feeds"}, r'found by a Filter, such as Filter\(queue="feeds"\), not by'),
    ],
)
async def test_a_filter_of_wrong_types_is_refused(
    app_inspector: Inspector, wrong: Any, sentence: str
) -> None:
    for ask in (app_inspector.find, app_inspector.count, app_inspector.cancel):
        with pytest.raises(ConfigurationError, match=sentence):
            await ask(wrong)
    with pytest.raises(ConfigurationError, match=sentence):
        _ = [job async for job in app_inspector.each(wrong)]
