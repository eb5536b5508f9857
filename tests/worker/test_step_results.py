"""A step returns the same in every attempt: the stored result, typed as annotated."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pydantic
import pytest

from tidemill import ConfigurationError, Context, Retry, State, Tidemill, testing

if TYPE_CHECKING:
    from http.client import HTTPConnection


AGAIN = Retry(attempts=3, first=1, jitter=0)


@dataclass
class Song:
    title: str
    year: int | None = None


class Track(msgspec.Struct):
    song: Song
    at: datetime


class Tags(TypedDict):
    mood: str


class Model(pydantic.BaseModel):
    tags: list[str]


def dataclasses(title: str) -> list[Song]:
    return [Song(title), Song(title, 1999)]


async def structs(title: str) -> Track:
    return Track(Song(title), datetime(2026, 1, 1, tzinfo=UTC))


async def typed_dicts(title: str) -> Tags:
    return {"mood": title}


async def pydantic_models(title: str) -> Model:
    return Model(tags=[title])


def plain(title: str) -> tuple[str, Decimal, set[int]]:
    return (title, Decimal("0.10"), {1})


async def nothing(title: str) -> None:
    assert title


def optional(title: str) -> Song | None:
    return None if title else Song("")


def unannotated(title):  # type: ignore[no-untyped-def]
    return {"title": title, "song": Song(title), "pair": (1, 2)}


def for_editors_only(title: str, by: HTTPConnection | None = None) -> Song:
    assert by is None
    return Song(title)


def awaited(title: str) -> Awaitable[Song]:
    async def later() -> Song:
        return Song(title)

    return later()


class Asks:
    """A callable object, and an object with a method that is called."""

    async def __call__(self, title: str) -> Song:
        return Song(title)

    def method(self, title: str) -> Song:
        return Song(title)


CASES: list[tuple[Callable[..., Any], Any]] = [
    (dataclasses, [Song("Tide"), Song("Tide", 1999)]),
    (structs, Track(Song("Tide"), datetime(2026, 1, 1, tzinfo=UTC))),
    (typed_dicts, {"mood": "Tide"}),
    (pydantic_models, Model(tags=["Tide"])),
    (plain, ("Tide", Decimal("0.10"), {1})),
    (nothing, None),
    (optional, None),
    (unannotated, {"title": "Tide", "song": {"title": "Tide", "year": None}, "pair": [1, 2]}),
    (lambda title: (title, 1), ["Tide", 1]),
    (for_editors_only, Song("Tide")),
    (awaited, Song("Tide")),
    (Asks(), Song("Tide")),
    (Asks().method, Song("Tide")),
]


@pytest.mark.parametrize("paid", [True, False])
@pytest.mark.parametrize(("call", "wanted"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_result_is_typed_alike_on_the_first_run_and_on_replay(
    call: Callable[..., Any], wanted: Any, paid: bool
) -> None:
    app = Tidemill("memory://")
    seen: list[Any] = []

    @app.task(retry=AGAIN)
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("ask", call, "Tide", paid=paid))
        if ctx.attempt < 3:
            raise ValueError("again")

    with testing.kit(app) as kit:
        work.enqueue_sync()
        kit.run_for(10)
    assert seen == [wanted] * 3
    assert {type(found) for found in seen} == {type(wanted)}


def test_a_step_in_a_sync_handler_of_a_kit() -> None:
    app = Tidemill("memory://")
    seen: list[Any] = []

    @app.task(retry=AGAIN)
    def work(ctx: Context) -> None:
        seen.append(ctx.step_sync("ask", dataclasses, "Tide", paid=True))
        if ctx.attempt < 3:
            raise ValueError("again")

    with testing.kit(app) as kit:
        work.enqueue_sync()
        kit.run_for(10)
    assert seen == [[Song("Tide"), Song("Tide", 1999)]] * 3


def test_steps_in_inline_mode() -> None:
    app = Tidemill("memory://")

    @app.task
    async def work(ctx: Context) -> list[str]:
        return [song.title for song in await ctx.step("ask", dataclasses, "Tide", paid=True)]

    @app.task
    def work_plainly(ctx: Context) -> list[str]:
        return [song.title for song in ctx.step_sync("ask", dataclasses, "Tide", paid=True)]

    with testing.inline(app):
        assert work.enqueue_sync().result_sync() == ["Tide", "Tide"]
        assert work_plainly.enqueue_sync().result_sync() == ["Tide", "Tide"]


def test_a_batch_tasks_handler_has_no_steps() -> None:
    app = Tidemill("memory://")

    @app.batch_task(max_items=2)
    async def work(ctx: Context, titles: list[str]) -> list[int]:
        return [len(await ctx.step("ask", dataclasses, titles[0])) for _ in titles]

    with testing.kit(app) as kit:
        work.enqueue_sync("Tide")
        [job] = kit.run_for(3600, check=False)
    assert job.error is not None
    assert (job.error.type, "a step belongs to one" in job.error.message) == ("ConfigurationError", True)


def test_a_return_type_must_be_decodable_before_the_call_is_paid() -> None:
    app = Tidemill("memory://")
    called: list[int] = []

    def ask() -> HTTPConnection:
        called.append(1)
        raise AssertionError

    def opens() -> Asks:
        called.append(1)
        return Asks()

    @app.task
    async def work(ctx: Context, which: str) -> None:
        await ctx.step("ask", {"ask": ask, "opens": opens}[which], paid=True)

    with testing.inline(app):
        for which, says in (("ask", "HTTPConnection"), ("opens", "Asks cannot be read from JSON")):
            with pytest.raises(ConfigurationError, match=says):
                work.enqueue_sync(which)
    assert not called


def test_an_error_that_only_a_code_change_fixes_is_not_retried() -> None:
    app = Tidemill("memory://")

    def opened(path: str) -> io.StringIO:
        return io.StringIO(path)

    @app.task(retry=Retry(attempts=3, first=0))
    async def read(ctx: Context) -> None:
        await ctx.step("open", opened, "x")

    with testing.kit(app) as kit:
        sent = read.enqueue_sync()
        kit.run_for(3600, check=False)
        job = kit.job(sent)
    assert (job.state, job.attempts, job.reason) == (State.FAILED, 1, "wrong use")
    assert job.error is not None
    assert job.error.type == "ConfigurationError"
