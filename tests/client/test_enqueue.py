"""A job arrives as it was sent (I2), once (I3), with its options."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.client.support import run_one
from tidemill import Context, Filter, InvalidJob, JobHandle, State, Tidemill, Unique


class Song(msgspec.Struct):
    title: str
    seconds: float = 0.0


async def test_a_job_arrives_as_it_was_sent(app: Tidemill) -> None:
    @app.task(name="songs:describe", queue="metadata", priority=3, expires=60)
    async def describe(ctx: Context, songs: list[Song], *, loud: bool = False) -> int:
        return len(songs)

    handle = await describe.enqueue([Song("Tide", 3.5)], loud=True)
    job = await handle.status()
    assert not handle.existing
    assert (job.id, job.task, job.queue, job.state) == (
        handle.id,
        "songs:describe",
        "metadata",
        State.READY,
    )
    assert (job.priority, job.lane, job.timeout) == (3, "", None)
    assert job.expires == job.created + 60
    assert msgspec.json.decode(job.payload) == {"songs": [{"title": "Tide", "seconds": 3.5}], "loud": True}


async def test_using_sets_every_option_and_leaves_the_task_alone(app: Tidemill) -> None:
    @app.task
    def work(number: int) -> None: ...

    special = work.using(
        priority=-1,
        delay=timedelta(minutes=1),
        expires=timedelta(hours=1),
        unique=Unique("u"),
        key="k",
        timeout=7,
        queue="other",
        id="chosen",
        trace="t",
        tags=["a", "b"],
    )
    job = await (await special.enqueue(1)).status()
    assert (job.id, job.queue, job.priority, job.lane, job.unique_key) == ("chosen", "other", -1, "k", "u")
    assert (job.timeout, job.trace, job.tags, job.state) == (7, "t", ("a", "b"), State.SCHEDULED)
    assert abs(job.due - job.created - 60) < 1e-3
    plain = await (await work.enqueue(1)).status()
    assert (plain.queue, plain.priority, plain.state, plain.tags) == ("default", 5, State.READY, ())


async def test_using_twice_keeps_options_and_the_later_time_wins(app: Tidemill) -> None:
    @app.task
    def work() -> None: ...

    at = datetime(2100, 1, 1, tzinfo=UTC)
    job = await (await work.using(priority=1, delay=5).using(at=at).enqueue()).status()
    assert (job.priority, job.due) == (1, at.timestamp())
    job = await (await work.using(at=at).using(delay=5).enqueue()).status()
    assert abs(job.due - job.created - 5) < 1e-3


async def test_key_and_unique_are_computed_from_the_arguments(app: Tidemill) -> None:
    @app.task(key=lambda host, page: host, unique=lambda host, page: Unique(f"{host}/{page}"))
    def fetch(host: str, page: int) -> None: ...

    first = await fetch.enqueue("example.org", page=3)
    job = await first.status()
    assert (job.lane, job.unique_key) == ("example.org", "example.org/3")
    again = await fetch.enqueue("example.org", 3)
    assert again.existing
    assert again.id == first.id


async def test_the_same_id_creates_one_job_i3(app: Tidemill) -> None:
    @app.task
    def work() -> None: ...

    once = work.using(id="order-7")
    first, second = await once.enqueue(), await once.enqueue()
    assert first.id == second.id == "order-7"
    assert (await app.store.counts())["default"][State.READY] == 1


async def test_enqueue_many_sends_one_group_per_queue_and_returns_handles_in_order(app: Tidemill) -> None:
    @app.task
    def work(number: int) -> int:
        return number

    requests = [work.using(queue=f"q{n % 3}", id=f"job-{n}").job(n) for n in range(10)]
    handles: list[JobHandle[int]] = await app.enqueue_many(requests)
    assert [handle.id for handle in handles] == [f"job-{n}" for n in range(10)]
    again = await app.enqueue_many(iter(requests))
    assert [handle.id for handle in again] == [handle.id for handle in handles]
    assert len((await app.store.find(Filter())).jobs) == 10
    assert await app.enqueue_many([]) == []


async def test_more_jobs_than_a_group_holds_are_all_sent(app: Tidemill) -> None:
    @app.task
    def work(number: int) -> None: ...

    handles = await app.enqueue_many(work.job(n) for n in range(10_001))
    assert len({handle.id for handle in handles}) == 10_001
    assert (await app.store.counts())["default"][State.READY] == 10_001


async def test_jobs_already_sent_arrive_before_an_error_is_raised(
    app: Tidemill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.client.request.MAX_JOBS_PER_CHUNK", 2)

    @app.task
    def work(number: int) -> None: ...

    def requests() -> Iterator[Any]:
        yield from (work.job(number) for number in range(4))
        yield "not a job"

    with pytest.raises(InvalidJob, match="sending those before it again doubles none"):
        await app.enqueue_many(requests())
    assert (await app.store.counts())["default"][State.READY] == 4


async def test_a_task_is_still_its_function(app: Tidemill) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    assert await double(4) == 8
    await double.enqueue(4)
    await run_one(app)
