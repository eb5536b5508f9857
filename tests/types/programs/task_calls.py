"""What an editor says about tasks, jobs and their options."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, reveal_type

from tidemill import Context, JobHandle, Retention, Retry, Task, Tidemill, Unique

app = Tidemill("memory://")
app.queue("feeds", weight=5, keep_done=Retention(age=60))


@app.task
async def describe(ctx: Context, songs: list[str], label: str = "") -> dict[str, int]:
    return dict.fromkeys(songs, ctx.attempt)


@app.task(queue="feeds", retry=Retry(attempts=2), timeout=timedelta(minutes=1))
async def without_context(number: int) -> float:
    return number / 2


@app.task
def plain(number: int) -> str:
    return str(number)


@app.task(priority=1, unique=Unique("one"), key=lambda name: name)
def plain_with_context(ctx: Context, *, name: str) -> bytes:
    return f"{ctx.job_id} {name}".encode()


def is_busy(error: BaseException) -> bool:
    return "busy" in str(error)


@app.task(retry=Retry(on=ConnectionError, give_up_on=is_busy))
def nothing() -> None: ...


@app.task(retry=Retry(on=(ConnectionError, is_busy), give_up_on=[ValueError, TimeoutError]))
def nothing_either() -> None: ...


Retry(on="ConnectionError")  # expect: arg-type, reportArgumentType
Retry(give_up_on=(1, 2))  # expect: arg-type, reportArgumentType


@app.lifespan
async def shared() -> AsyncIterator[dict[str, int]]:
    yield {}


@app.middleware
async def around(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
    return await run()


# fmt: off
async def what_an_editor_shows() -> None:
    reveal_type(describe.enqueue)  # reveals: (songs: list[str], label: str = ...) -> Coroutine[Any, Any, JobHandle[dict[str, int]]]
    reveal_type(describe.enqueue_sync)  # reveals: (songs: list[str], label: str = ...) -> JobHandle[dict[str, int]]
    reveal_type(plain_with_context.job)  # reveals: (*, name: str) -> JobRequest[bytes]
    job = await describe.enqueue(["a"], label="b")
    reveal_type(job)  # reveals: JobHandle[dict[str, int]]
    reveal_type(job.id)  # reveals: str
    reveal_type(await job.result(timeout=3))  # reveals: dict[str, int]
    reveal_type(job.result_sync())  # reveals: dict[str, int]
    reveal_type(await job.status())  # reveals: Job
    reveal_type(await job.cancel())  # reveals: bool
    reveal_type(await (await without_context.enqueue(number=3)).result())  # reveals: float
    reveal_type(plain.enqueue_sync(1))  # reveals: JobHandle[str]
    reveal_type(await (await plain_with_context.enqueue(name="x")).result())  # reveals: bytes
    reveal_type(await nothing.enqueue())  # reveals: JobHandle[None]
    reveal_type(describe.using(priority=1))  # reveals: Task[(songs: list[str], label: str = ...), dict[str, int]]
    reveal_type(describe.job(["a"]))  # reveals: JobRequest[dict[str, int]]
    reveal_type(await app.enqueue_many(plain.job(n) for n in range(3)))  # reveals: list[JobHandle[str]]
    reveal_type(app.enqueue_many_sync([plain.job(1)]))  # reveals: list[JobHandle[str]]
    reveal_type(await app.job("id").result())  # reveals: Any
    reveal_type(app.run_sync(job.result()))  # reveals: dict[str, int]
    reveal_type(app.run_sync(app.inspect.pause("feeds")))  # reveals: None


# fmt: on
async def right() -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC)
    special = describe.using(delay=timedelta(seconds=1), unique=Unique("u"), tags=["a"], key="k", trace="t")
    await special.using(at=later, expires=60, timeout=3.5, queue="feeds", id="x", priority=1).enqueue([])
    await app.enqueue_many([plain.job(1), without_context.job(2)])
    await app.inspect.pause("feeds", until=later, reason="invoice")
    await app.worker(queues=["feeds"], concurrency=3).run()
    app.run_worker(queues={"feeds": 2}, until_idle=True)
    as_task: Task[[int], str] = plain
    as_object: JobHandle[object] = plain.enqueue_sync(1)
    await as_task.enqueue(1)
    await as_object.result()


async def wrong() -> None:
    await describe.enqueue("three")  # expect: arg-type, reportArgumentType
    await describe.enqueue(["a"], label=1)  # expect: arg-type, reportArgumentType
    await describe.enqueue(["a"], colour="red")  # expect: call-arg, reportCallIssue
    await describe.enqueue(["a"], "b", "c")  # expect: call-arg, reportCallIssue
    await describe.enqueue()  # expect: call-arg, reportCallIssue
    describe.enqueue_sync(songs=3)  # expect: arg-type, reportArgumentType
    without_context.enqueue_sync([])  # expect: arg-type, reportArgumentType
    nothing.enqueue_sync(1)  # expect: call-arg, reportCallIssue
    plain.job(None)  # expect: arg-type, reportArgumentType
    plain.job(nummer=1)  # expect: call-arg, reportCallIssue
    plain_with_context.enqueue_sync("positional")  # expect: call-arg, reportCallIssue
    plain.using(priority="high")  # expect: arg-type, reportArgumentType
    plain.using(prio=1)  # expect: call-arg, reportCallIssue
    plain.using(unique="key")  # expect: arg-type, reportArgumentType
    plain.using(tags="abc")  # expect: arg-type, reportArgumentType
    plain.using(delay="1m")  # expect: arg-type, reportArgumentType
    plain.using(1)  # expect: call-arg, reportCallIssue
    number: int = await (await plain.enqueue(1)).result()  # expect: assignment, reportAssignmentType
    words: str = await plain.enqueue(number)  # expect: assignment, reportAssignmentType
    app.task(queue=3)  # expect: call-overload, reportArgumentType
    app.task(que=words)  # expect: call-overload, reportCallIssue
    app.queue("feeds", weight="heavy")  # expect: arg-type, reportArgumentType
    app.queue("feeds", wieght=3)  # expect: call-arg, reportCallIssue
    await app.enqueue_many([1, 2])  # expect: arg-type, reportArgumentType
    await app.enqueue_many([plain.enqueue(1)])  # expect: arg-type, reportArgumentType
    app.worker(concurency=3)  # expect: call-arg, reportCallIssue
    app.run_worker(lease="30s")  # expect: arg-type, reportArgumentType
    app.run_sync(app.job)  # expect: arg-type, reportArgumentType
    Tidemill(urn="memory://")  # expect: call-arg, reportCallIssue
    Retry(atempts=2)  # expect: call-arg, reportCallIssue
    Unique("a", on_conflict="ignore")  # expect: arg-type, reportArgumentType
