"""Jobs that commit with a caller's rows, and rows that commit with a job's outcome (X1 to X4)."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from tidemill import Context, Limit, Retry, Tidemill, Unique
from tidemill.client.job_handle import JobHandle
from tidemill.client.task import ArrivalHandle
from tidemill.contract.jobs import ExtendResult
from tidemill.core.claims import ClaimRequest, Heartbeat, QueueShare
from tidemill.core.states import State
from tidemill.errors import ConfigurationError, InvalidJob, JobFailed, JobNotFound
from tidemill.stores.postgres import PostgresStore


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[Tidemill]:
    """An application, and a table in the same database."""
    theirs = await asyncpg.connect(postgres_url)
    await theirs.execute("CREATE TABLE public.rows (n int)")
    await theirs.close()
    async with Tidemill(postgres_url) as app:
        yield app


@asynccontextmanager
async def working(app: Tidemill, **options: Any) -> AsyncIterator[None]:
    worker = app.worker(concurrency=4, **options)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def written(url: str) -> list[int]:
    async with connected(url) as connection:
        return [row["n"] for row in await connection.fetch("SELECT n FROM public.rows ORDER BY n")]


# -- enqueue


async def test_x1_a_job_commits_or_vanishes_with_the_callers_rows(app: Tidemill, postgres_url: str) -> None:
    @app.task(name="add", queue="sums", priority=7)
    async def add(a: int, b: int) -> int:
        return a + b

    async with connected(postgres_url) as connection, working(app):
        with pytest.raises(ZeroDivisionError):
            async with connection.transaction():
                lost = await add.using(connection=connection).enqueue(1, 1)
                raise ZeroDivisionError
        async with connection.transaction():
            sent = await add.using(connection=connection, priority=3, tags=["x"]).enqueue(1, b=2)
            await connection.execute("INSERT INTO public.rows VALUES (1)")
            with pytest.raises(JobNotFound, match="its transaction is not committed"):
                await sent.result(timeout=0.1)
        assert await sent.result(timeout=10) == 3
        job = await sent.status()
        assert (job.queue, job.priority, job.tags) == ("sums", 3, ("x",))
        with pytest.raises(JobNotFound):
            await lost.result(timeout=0.1)


async def test_x1_from_a_program_without_a_loop(app: Tidemill, postgres_url: str) -> None:
    @app.task(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    def send() -> JobHandle[int]:
        with psycopg.connect(postgres_url) as connection:
            return add.using(connection=connection, unique=Unique("k", period=60)).enqueue_sync(2, 2)

    async with working(app):
        sent = await asyncio.to_thread(send)
        assert await sent.result(timeout=10) == 4
    await asyncio.to_thread(app.close_sync)


async def test_x1_plain_sql_and_a_request_that_cannot_be_a_job(app: Tidemill, postgres_url: str) -> None:
    @app.task(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    async with connected(postgres_url) as connection, working(app):
        good = await connection.fetchval("""SELECT tidemill.enqueue('add', '{"a": 2, "b": 3}')""")
        bad = await connection.fetchval("""SELECT tidemill.enqueue('add', '{"a": "two", "b": 3}')""")
        assert await ArrivalHandle[int](app.client, good).result(timeout=10) == 5
        with pytest.raises(JobFailed, match=r"payload: .*a"):
            await ArrivalHandle[int](app.client, bad).result(timeout=10)


async def test_x3_other_stores_refuse_a_caller_transaction(app: Tidemill, postgres_url: str) -> None:
    elsewhere = Tidemill("memory://")

    @elsewhere.task(name="there")
    async def there(ctx: Context, a: int) -> None:
        async with ctx.transaction():
            raise AssertionError

    async with connected(postgres_url) as connection, elsewhere:
        with pytest.raises(ConfigurationError, match="use a postgresql:// store, or send the job after"):
            await there.using(connection=connection).enqueue(1)
        with pytest.raises(InvalidJob, match="enqueue_many has a call of its own"):
            there.using(connection=connection).job(1)
        async with working(elsewhere):
            with pytest.raises(JobFailed, match="this store is not in a database"):
                await (await there.enqueue(1)).result(timeout=10)


# -- settle


async def write_row(ctx: Context, n: int) -> int:
    """At module level: a child process imports the handler of a crashed job by name."""
    async with ctx.transaction() as tx:
        await tx.connection.execute("INSERT INTO public.rows VALUES ($1)", n)
        tx.done(n * 10)
    return n * 10


async def test_x4_rows_and_the_settlement_commit_together(app: Tidemill, postgres_url: str) -> None:
    write = app.task(name="write")(write_row)
    sent = await write.enqueue(1)
    async with working(app):
        assert await sent.result(timeout=10) == 10
    assert await written(postgres_url) == [1]
    assert (await app.store.counts())["default"][State.DONE] == 1
    assert not await app.store.attempts(sent.id)


async def test_x4_an_exception_in_the_transaction_leaves_no_rows(app: Tidemill, postgres_url: str) -> None:
    """No rows and no outcome: the next attempt starts from the beginning. The error is the handler's own."""

    @app.task(name="write", retry=Retry(attempts=2, first=0))
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.connection.execute("INSERT INTO public.rows VALUES ($1)", ctx.attempt)
            if ctx.attempt == 1:
                await tx.connection.execute("SELECT 1/0")

    sent = await write.enqueue()
    async with working(app):
        await sent.result(timeout=10)
    assert await written(postgres_url) == [2]
    (first,) = await app.store.attempts(sent.id)
    assert first.error is not None
    assert first.error.type.endswith("DivisionByZeroError")


async def test_x4_the_rest_of_the_handler_does_not_change_the_outcome(
    app: Tidemill, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a heartbeat finds the job done while its handler still runs: the handler is not cancelled."""
    committed, go_on, ends = asyncio.Event(), asyncio.Event(), list[str]()
    loop, extend = asyncio.get_running_loop(), PostgresStore.extend
    beats: asyncio.Queue[ExtendResult] = asyncio.Queue()

    async def extend_and_tell(self: PostgresStore, heartbeat: Heartbeat) -> ExtendResult:
        extended = await extend(self, heartbeat)
        loop.call_soon_threadsafe(beats.put_nowait, extended)
        return extended

    monkeypatch.setattr(PostgresStore, "extend", extend_and_tell)

    @app.task(name="write", retry=Retry(attempts=3, first=0))
    async def write(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            await tx.connection.execute("INSERT INTO public.rows VALUES (1)")
            tx.done("the result")
        committed.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        ends.append("went on")
        raise ValueError("too late")

    sent = await write.enqueue()
    async with working(app, lease=1.0, heartbeat=0.1):
        assert await sent.result(timeout=10) == "the result"
        await committed.wait()
        while sent.id not in (await beats.get()).lost:
            pass
        await beats.get()  # a job that the first heartbeat marks for cancelling is cancelled by the next
        go_on.set()
    assert ends == ["went on"]
    job = await sent.status()
    assert (job.state, job.attempts) == (State.DONE, 1)
    assert await written(postgres_url) == [1]


@pytest.mark.parametrize("inside", [False, True])
async def test_x4_i6_a_worker_that_lost_the_job_writes_nothing(
    app: Tidemill, postgres_url: str, *, inside: bool
) -> None:
    """Lost before the block or inside it. The operator who cancels the job does not wait."""
    begun, lost = asyncio.Event(), asyncio.Event()

    async def lose() -> None:
        begun.set()
        await lost.wait()

    @app.task(name="write")
    async def write(ctx: Context) -> None:
        if not inside:
            await lose()
        async with ctx.transaction() as tx:
            await tx.connection.execute("INSERT INTO public.rows VALUES (1)")
            if inside:
                await lose()

    sent = await write.enqueue()
    async with working(app, lease=60.0):
        await begun.wait()
        job = await sent.status()
        assert job.worker is not None
        other = await PostgresStore(postgres_url).open()
        await other.pause("default")  # first, or the worker that lost it claims it again
        await other.reclaim([job.worker])
        await other.close()
        lost.set()
    assert (await sent.status()).state is State.READY
    assert not await written(postgres_url)


async def test_x4_calls_and_steps_are_refused_inside_the_transaction(
    app: Tidemill, postgres_url: str
) -> None:
    metered = app.pool("metered", Limit.requests(10, per="second"))
    messages: list[str] = []

    async def call() -> int:
        raise AssertionError

    @app.task(name="write", retry=Retry(attempts=1))
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.connection.execute("INSERT INTO public.rows VALUES (1)")
            for attempted in (lambda: ctx.spend(metered), ctx.transaction):
                with pytest.raises(ConfigurationError) as refused:
                    await attempted().__aenter__()
                messages.append(str(refused.value))
            await ctx.step("call", call, paid=True)

    sent = await write.enqueue()
    async with working(app):
        with pytest.raises(JobFailed, match=r"ctx\.step inside ctx\.transaction\(\)"):
            await sent.result(timeout=10)
    assert not await written(postgres_url)
    assert [line.split(" ")[0] for line in messages] == ["ctx.spend", "ctx.transaction"]


async def test_x4_a_job_that_crashed_before_may_use_the_transaction(app: Tidemill, postgres_url: str) -> None:
    """The application is a local variable, so no child can import it: the job runs in the worker."""
    write = app.task(name="write")(write_row)
    sent = await write.enqueue(4)
    await make_suspect(app)
    assert (await sent.status()).crashes
    async with working(app):
        assert await sent.result(timeout=30) == 40
    assert await written(postgres_url) == [4]


APPLICATION = """
import os
from pathlib import Path
from tidemill import Context, Retry, Tidemill

app = Tidemill({url!r})

@app.task(name="write", retry=Retry(attempts=1))
async def write(ctx: Context, n: int) -> int:
    with Path({notes!r}).open("a") as notes:
        notes.write(f"{{os.getpid()}}\\n")
    async with ctx.transaction() as tx:
        await tx.connection.execute("INSERT INTO public.rows VALUES ($1)", n)
        tx.done(os.getpid())
        if n < 0:
            raise ValueError("negative")
    return 0
"""


@pytest.mark.parametrize("n", [5, -5])
async def test_x4_a_transaction_commits_in_a_child_process(
    app: Tidemill, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """Uses an application that the child can import. The handler runs once."""
    notes = tmp_path / "notes"
    (tmp_path / "ends_in_child.py").write_text(APPLICATION.format(url=postgres_url, notes=str(notes)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ends_in_child", raising=False)
    module = importlib.import_module("ends_in_child")
    async with module.app:
        sent = await module.write.enqueue(n)
        await make_suspect(module.app)
        async with working(module.app):
            if n < 0:
                with pytest.raises(JobFailed, match="negative"):
                    await sent.result(timeout=30)
            else:
                assert await sent.result(timeout=30) != os.getpid()
        assert len(notes.read_text().split()) == 1
    assert await written(postgres_url) == ([n] if n > 0 else [])


async def make_suspect(app: Tidemill) -> None:
    request = ClaimRequest(worker="dead", number=1, shares=(QueueShare("default", 1),), limit=1, lease=60.0)
    assert (await app.store.claim(request)).jobs
    await app.store.reclaim(["dead"])
