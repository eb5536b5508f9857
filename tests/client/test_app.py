"""Declarations of an application: what it refuses and writes, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tidemill
from tidemill import (
    ConfigurationError,
    Context,
    Filter,
    JobFailed,
    QueueSettings,
    Retention,
    Retry,
    Tidemill,
    Unique,
)
from tidemill import Context as Whatever
from tidemill.core.queues import QueueChanges
from tidemill.store_url import StoreUrl


def sample(number: int) -> None: ...


BAD_TASKS: list[tuple[dict[str, Any], list[str]]] = [
    ({"que": "feeds"}, ["unknown option 'que'", "valid options are name, queue, priority"]),
    ({"priority": "high"}, ["sample", "priority", "whole number"]),
    ({"priority": 10**6}, ["sample", "priority", "between"]),
    ({"timeout": 0}, ["sample", "timeout", "above 0"]),
    ({"timeout": "1m"}, ["sample", "timeout", "seconds or a timedelta"]),
    ({"retry": 3}, ["sample", "retry", "Retry(attempts=3)"]),
    ({"retry": Retry(attempts=0)}, ["sample", "retry.attempts", "1 or more"]),
    ({"retry": Retry(attempts=2.5)}, ["sample", "retry.attempts", "a whole number", "2.5"]),  # type: ignore[arg-type]
    ({"retry": Retry(attempts=True)}, ["sample", "retry.attempts", "a whole number", "True"]),
    ({"retry": Retry(first="60s")}, ["sample", "retry.first", "seconds or a timedelta", "'60s'"]),  # type: ignore[arg-type]
    ({"retry": Retry(cap=timedelta(-1))}, ["sample", "retry.cap", "0 or more"]),
    ({"unique": Unique("u", "ignore")}, ["sample", "unique.on_conflict", "skip, replace, merge, rerun"]),  # type: ignore[arg-type]
    ({"unique": Unique(7)}, ["sample", "unique.key", "a string"]),  # type: ignore[arg-type]
    ({"isolate": "yes"}, ["sample", "isolate", "True or False"]),
    ({"key": "host"}, ["sample", "key", "a function"]),
    ({"unique": "feed"}, ["sample", "unique", "a Unique"]),
    ({"queue": ""}, ["sample", "queue", "1 to 200"]),
    ({"name": "n" * 201}, ["name", "1 to 200"]),
    ({"max_bytes": 0}, ["sample", "max_bytes", "above 0"]),
    ({"expires": -1}, ["sample", "expires", "0 or more"]),
]


@pytest.mark.parametrize(("options", "says"), BAD_TASKS, ids=str)
def test_a_task_that_cannot_work_is_refused(options: dict[str, Any], says: list[str]) -> None:
    app = Tidemill("memory://")
    with pytest.raises(ConfigurationError) as caught:
        app.task(**options)(sample)
    assert all(part in str(caught.value) for part in says), str(caught.value)
    assert not app.tasks


def test_only_functions_with_named_parameters_are_tasks() -> None:
    def variadic(*numbers: int) -> None: ...

    app = Tidemill("memory://")
    with pytest.raises(ConfigurationError, match="named members"):
        app.task(variadic)
    with pytest.raises(ConfigurationError, match="not a function"):
        app.task("feeds")  # type: ignore[call-overload]


def test_a_context_is_known_under_any_name() -> None:
    app = Tidemill("memory://")

    @app.task
    async def handler(ctx: Whatever, number: int) -> None: ...

    assert handler.definition.takes_context
    assert handler.job(1).job.payload == b'{"number":1}'


def test_two_tasks_of_one_name_are_refused_naming_both() -> None:
    app = Tidemill("memory://")
    app.task(name="work")(sample)
    with pytest.raises(ConfigurationError) as caught:

        @app.task(name="work")
        def other() -> None: ...

    assert "test_app.sample" in str(caught.value)
    assert "other" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"wieght": 5}, ["unknown option 'wieght'", "valid options are weight"]),
        ({"weight": 0}, ["weight", "1 or more"]),
        ({"max_length": 0}, ["max_length", "None for no limit"]),
        ({"weight": "5"}, ["'feeds'", "weight", "a whole number", "'5'"]),
        ({"concurrency": "4"}, ["'feeds'", "concurrency", "a whole number", "'4'"]),
        ({"concurrency": True}, ["'feeds'", "concurrency", "a whole number"]),
        ({"keep_done": Retention(age="1d")}, ["'feeds'", "keep_done", "age", "a number of seconds", "'1d'"]),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_queue_that_cannot_work_is_refused(settings: dict[str, Any], says: list[str]) -> None:
    app = Tidemill("memory://")
    with pytest.raises(ConfigurationError) as caught:
        app.queue("feeds", **settings)
    assert all(part in str(caught.value) for part in says), str(caught.value)
    assert not app.queues


def test_a_queue_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="queue: must have 1 to 200 characters"):
        Tidemill("memory://").queue("")


def test_a_queue_declared_twice_is_refused() -> None:
    app = Tidemill("memory://")
    app.queue("feeds", weight=2)
    with pytest.raises(ConfigurationError, match="declared twice"):
        app.queue("feeds", weight=3)


async def test_opening_declares_queues_and_leaves_overrides_q1(url: str) -> None:
    app = Tidemill(url)
    app.queue("feeds", weight=5, keep_done=Retention(count=10))
    async with app:
        await app.store.override("feeds", QueueChanges(weight=9), by="ann")
        await app.close()
        (info,) = await (await app.client.store()).queues()
    assert info.declared == QueueSettings(weight=5, keep_done=Retention(count=10))
    assert info.settings.weight == 9


async def test_a_worker_runs_with_lifespan_and_middleware(app: Tidemill) -> None:
    events: list[str] = []

    @app.lifespan
    async def shared() -> AsyncIterator[dict[str, int]]:
        events.append("opened")
        yield {"answer": 42}
        events.append("closed")

    @app.middleware
    async def around(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
        events.append(f"before {ctx.task}")
        result = await run()
        events.append("after")
        return result

    @app.task(name="ask", queue="questions")
    async def ask(ctx: Context) -> int:
        answer: int = ctx.state["answer"]
        return answer

    handle = await ask.enqueue()
    await app.worker(until_idle=True).run()
    assert await handle.result(timeout=10) == 42
    assert events == ["opened", "before ask", "after", "closed"]


async def test_a_lifespan_may_be_a_context_manager_already(app: Tidemill) -> None:
    @app.lifespan
    @asynccontextmanager
    async def shared() -> AsyncIterator[int]:
        yield 42

    @app.task(name="ask")
    async def ask(ctx: Context) -> int:
        answer: int = ctx.state
        return answer

    handle = await ask.enqueue()
    await app.worker(until_idle=True).run()
    assert await handle.result(timeout=10) == 42


def test_a_lifespan_or_a_middleware_that_cannot_work_is_refused() -> None:
    app = Tidemill("memory://")

    async def returns() -> None: ...

    def sync(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any: ...

    class Around:
        async def __call__(self, ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any: ...

    with pytest.raises(ConfigurationError, match=r"lifespan: .*returns.*yield"):
        app.lifespan(returns)  # type: ignore[type-var]
    with pytest.raises(ConfigurationError, match=r"middleware: .*sync.* is not async"):
        app.middleware(sync)
    app.middleware(Around())
    app.middleware(partial(Around.__call__, Around()))
    assert len(app.middlewares) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurrency": "10"}, ["concurrency", "`int`", "'10'"]),
        ({"lease": "30"}, ["lease", "`float`", "'30'"]),
        ({"strict": "no"}, ["strict", "`bool`"]),
        ({"threads": 1.5}, ["threads", "`int"]),
        ({"queues": {"a": 0}}, ["queues", "'a'", "1 or more"]),
        ({"queues": {"a": "2"}}, ["queues", "`int`"]),
    ],
    ids=str,
)
def test_a_worker_option_of_the_wrong_type_is_refused(options: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Tidemill("memory://").worker(**options)
    assert all(part in str(caught.value) for part in says), str(caught.value)


def test_a_worker_serves_every_queue_of_the_application_by_weight() -> None:
    app = Tidemill("memory://")
    app.queue("feeds", weight=5)
    app.task(queue="mail")(sample)
    assert app.worker_options().queues == {"feeds": 5, "mail": 1}
    assert app.worker_options(queues=["feeds", "mail"]).queues == {"feeds": 5, "mail": 1}
    assert app.worker_options(queues={"feeds": 2, "mail": None}).queues == {"feeds": 2, "mail": 1}
    assert app.worker_options(queues="feeds").queues == {"feeds": 5}
    with pytest.raises(ConfigurationError, match="unknown option 'threds'; valid options are queues"):
        app.worker(threds=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("jobs.db", ["no scheme", "memory://", "sqlite:///"]),
        ("mysql://root:secret@host/db", ["unknown scheme in 'mysql://***'", "sqlite:///"]),
        ("mysql://root:se/secret@h/db", ["unknown scheme in 'mysql://***'"]),
        ("mysql://root:a://secret?@h/db", ["unknown scheme in 'mysql://***'"]),
        ("user:secret@h", ["no scheme"]),
        ("user:secret@h://db", ["unknown scheme in '***'"]),
        ("redis+carrier-pigeon://:secret@host", ["unknown scheme in 'redis+carrier-pigeon://***'"]),
        ("amqp://secret:secret@host", ["amqp://", "not available in this version"]),
        ("sqlite://jobs.db", ["names no file", "three slashes"]),
        ("sqlite:///", ["names no file"]),
        ("sqlite:///jobs.db?mode=secret", ["mode: must be three octal digits", "is '***'"]),
        ("sqlite:///jobs.db?key=secret", ["'sqlite:///jobs.db?***'", "the only option", "?mode=0660"]),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_showing_secrets(url: str, says: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Tidemill(url)
    assert all(part in str(caught.value) for part in says), str(caught.value)
    assert "secret" not in str(caught.value)


def test_valid_urls() -> None:
    assert StoreUrl.parse("memory://") == StoreUrl("memory")
    assert StoreUrl.parse("sqlite:///a/b.db").path == "a/b.db"
    assert StoreUrl.parse("sqlite:////a/b%20c.db").path == "/a/b c.db"
    assert str(StoreUrl.parse("sqlite:////a/b.db")) == "sqlite:////a/b.db"
    assert StoreUrl.parse("redis://:pw@h:7000/1").server == "redis://:pw@h:7000/1"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@h:7000/1?prefix=a", "redis://h:7000/1"),
        ("rediss+sentinel://u:secret@[::1]:26379,b/main/2", "rediss+sentinel://[::1]:26379,b/main/2"),
        ("redis+unix:///run/redis.sock?db=1", "redis+unix:///run/redis.sock"),
        ("postgresql://u:secret@h/db?password=secret", "postgresql://h/db"),
        ("postgresql://u:se/secret@h/db", "postgresql://***"),
        ("redis://:secret", "redis://***"),
    ],
)
def test_only_the_host_of_a_server_url_is_shown(url: str, shown: str) -> None:
    assert str(StoreUrl.parse(url)) == shown


def test_the_environment_names_the_store_if_code_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_URL", "sqlite:///from-environment.db")
    assert Tidemill().url.path == "from-environment.db"
    assert Tidemill("memory://").url.scheme == "memory"
    monkeypatch.delenv("TIDEMILL_URL")
    assert Tidemill().url.path == "tidemill.db"


async def test_a_job_of_an_unopened_application_opens_it(url: str) -> None:
    app = Tidemill(url)
    handle = await app.task(sample).enqueue(1)
    page = await app.store.find(Filter())
    assert [job.id for job in page.jobs] == [handle.id]
    await app.close()
    await app.close()


def test_public_names_are_complete() -> None:
    assert sorted(tidemill.__all__) == tidemill.__all__
    for name in tidemill.__all__:
        assert getattr(tidemill, name) is not None
    public = {name for name in vars(tidemill) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(tidemill, name)).__name__ == "module"}
    assert public - modules - {"annotations", "TYPE_CHECKING", "import_module"} == set(tidemill.__all__)
    with pytest.raises(AttributeError, match="'Tidemil'"):
        getattr(tidemill, "Tidemil")  # noqa: B009 - mypy would refuse it


HEAVY = {
    *("structlog", "apsw", "click", "rich", "uvloop", "pydantic", "multiprocessing", "tomllib", "difflib"),
    *("django", "flask", "starlette", "fastapi", "uvicorn", "websockets", "httpx2", "pytest", "hypothesis"),
    *("tidemill.inspect", "tidemill.worker", "tidemill.stores", "tidemill.cli", "tidemill.testing"),
    *("tidemill.contract.store", "tidemill.core.pools", "zoneinfo"),
}


@pytest.mark.parametrize("program", ["import tidemill", "import tidemill; tidemill.Tidemill('memory://')"])
def test_importing_loads_nothing_heavy(program: str, tmp_path: Path) -> None:
    """Time differs between machines; the imported modules do not."""
    command = [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert not HEAVY & set(done.stdout.split())


def test_listening_to_an_error_names_the_module_of_the_event() -> None:
    with pytest.raises(ConfigurationError, match=r"`from tidemill\.telemetry\.events import JobFailed`"):
        Tidemill("memory://").on(JobFailed)  # type: ignore[arg-type]
