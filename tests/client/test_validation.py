"""Invalid input is refused where it is given: the error names the field and the remedy, nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tidemill import (
    ConfigurationError,
    Filter,
    InvalidJob,
    InvalidPayload,
    PayloadTooLarge,
    QueueFull,
    State,
    Task,
    Tidemill,
    TidemillError,
    Unique,
)


def _raise(**_: object) -> str:
    raise KeyError("host")


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - what is refused

BAD_OPTIONS: list[tuple[dict[str, Any], type[TidemillError], list[str]]] = [
    ({"prio": 1}, ConfigurationError, ["unknown option 'prio'", "valid options are priority, delay, at"]),
    ({"priority": "high"}, InvalidJob, ["priority", "a whole number", "'high'"]),
    ({"priority": True}, InvalidJob, ["priority", "a whole number"]),
    ({"priority": 99_999}, InvalidJob, ["priority", "between -32768 and 32767"]),
    ({"delay": "60"}, InvalidJob, ["delay", "seconds or a timedelta"]),
    ({"delay": -1}, InvalidJob, ["delay", "0 or more"]),
    ({"delay": float("nan")}, InvalidJob, ["delay", "0 or more"]),
    ({"at": NAIVE}, InvalidJob, ["at", "time zone", "tzinfo="]),
    ({"at": "tomorrow"}, InvalidJob, ["at", "Unix time or a datetime"]),
    ({"at": float("inf")}, InvalidJob, ["at", "must be a time"]),
    ({"at": 1.0, "delay": 1.0}, InvalidJob, ["at", "not both"]),
    ({"expires": -5}, InvalidJob, ["expires", "0 or more"]),
    ({"timeout": 0}, InvalidJob, ["timeout", "above 0"]),
    ({"unique": "feed-7"}, InvalidJob, ["unique", "Unique("]),
    ({"unique": Unique("")}, InvalidJob, ["unique.key", "1 to 200"]),
    ({"unique": Unique("a", period=0)}, InvalidJob, ["unique.period", "above 0"]),
    ({"unique": Unique("a", period="1h")}, InvalidJob, ["unique.period", "a timedelta", "'1h'"]),  # type: ignore[arg-type]
    ({"unique": Unique("a", "ignore")}, InvalidJob, ["unique.on_conflict", "skip, replace, merge, rerun"]),  # type: ignore[arg-type]
    ({"key": 7}, InvalidJob, ["key", "a string"]),
    ({"key": "k" * 201}, InvalidJob, ["key", "1 to 200"]),
    ({"queue": ""}, InvalidJob, ["queue", "1 to 200"]),
    ({"id": ""}, InvalidJob, ["id", "1 to 200"]),
    ({"tags": "urgent"}, InvalidJob, ["tags", "a list of strings"]),
    ({"tags": [1]}, InvalidJob, ["tags", "a list of strings"]),
    ({"trace": 1}, InvalidJob, ["trace", "a string"]),
]


@pytest.mark.parametrize(("options", "kind", "says"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
async def test_an_invalid_option_is_refused_by_using(
    app: Tidemill, options: dict[str, Any], kind: type[TidemillError], says: list[str]
) -> None:
    work = _register(app)
    with pytest.raises(kind) as caught:
        work.using(**options)  # type: ignore[typeddict-item, typeddict-unknown-key, unused-ignore]
    assert all(part in str(caught.value) for part in says), str(caught.value)


BAD_CALLS: list[tuple[tuple[Any, ...], dict[str, Any], list[str]]] = [
    (("seven",), {}, ["test:work", "Expected `int`", "number"]),
    ((None,), {}, ["test:work", "number"]),
    ((), {}, ["test:work", "number"]),
    ((1, "a", 3), {}, ["test:work", "too many"]),
    ((1,), {"colour": "red"}, ["test:work", "colour"]),
    ((object(),), {}, ["test:work", "JSON"]),
]


@pytest.mark.parametrize(
    ("args", "kwargs", "says"), BAD_CALLS, ids=[",".join(says) for _, _, says in BAD_CALLS]
)
async def test_an_invalid_argument_is_refused_and_nothing_is_stored(
    app: Tidemill, args: tuple[Any, ...], kwargs: dict[str, Any], says: list[str]
) -> None:
    work = _register(app)
    calls: list[Callable[..., Any]] = [work.enqueue_sync, work.job]
    for call in calls:
        with pytest.raises(InvalidPayload) as caught:
            call(*args, **kwargs)
        assert all(part in str(caught.value) for part in says), str(caught.value)
    with pytest.raises(InvalidPayload):
        await work.enqueue(*args, **kwargs)
    await _nothing_stored(app)


async def test_a_payload_over_the_limit_is_refused_naming_size_limit_and_remedy_q9(app: Tidemill) -> None:
    @app.task(name="big", max_bytes=2000)
    def work(text: str) -> None: ...

    with pytest.raises(PayloadTooLarge) as caught:
        await work.enqueue("x" * 2000)
    for part in ("'big'", "2011 bytes", "limit is 2000", "send a reference", "max_bytes"):
        assert part in str(caught.value)
    await _nothing_stored(app)
    await work.enqueue("x" * 1989)  # the very limit is allowed


async def test_a_large_payload_is_warned_about_once_a_minute_q9(
    app: Tidemill, capsys: pytest.CaptureFixture[str]
) -> None:
    @app.task(name="large", warn_bytes=100)
    def work(text: str) -> None: ...

    for _ in range(3):
        await work.enqueue("x" * 200)
    out, err = capsys.readouterr()
    assert err.count("large payload") == 1
    assert not out  # stdout is the program's


async def test_a_full_queue_is_refused_with_the_remedy_i22(url: str) -> None:
    app = Tidemill(url)
    app.queue("default", max_length=2)
    work = _register(app)
    async with app:
        await app.enqueue_many([work.job(1), work.job(2)])
        with pytest.raises(QueueFull) as caught:
            await work.enqueue(3)
        assert "'default'" in str(caught.value)
        assert "max_length" in str(caught.value)
        with pytest.raises(QueueFull):
            work.enqueue_sync(3)
        assert (await app.store.counts())["default"][State.READY] == 2


async def test_enqueue_many_refuses_a_queue_as_a_whole_and_says_what_was_accepted_j10(url: str) -> None:
    app = Tidemill(url)
    app.queue("small", max_length=2)
    work = _register(app)
    async with app:
        small = [work.using(queue="small").job(n) for n in range(3)]
        with pytest.raises(QueueFull) as caught:
            await app.enqueue_many([work.job(1), *small, work.job(2)])
        assert "2 jobs are stored and 3 were refused" in str(caught.value)
        assert "nothing was stored" not in str(caught.value)
        counts = await app.store.counts()
        assert counts["default"][State.READY] == 2
        assert not counts.get("small", {}).get(State.READY, 0)


async def test_enqueue_many_accepts_only_jobs_of_a_task(app: Tidemill) -> None:
    work = _register(app)
    wrong: list[tuple[Any, str]] = [
        (work.job(1), r"a list of jobs, such as \[send\.job\(…\)\], is JobRequest"),
        ([Unique], "not the class Unique"),
        ([work.job(1), work], "not Task"),
    ]
    for requests, says in wrong:
        with pytest.raises(InvalidJob, match=says):
            await app.enqueue_many(requests)
        with pytest.raises(InvalidJob, match=says):
            app.enqueue_many_sync(requests)
    await _nothing_stored(app)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": _raise}, ["key", "'test:computed'", "KeyError"]),
        ({"key": lambda number: number}, ["key", "must return str", "int"]),
        ({"unique": lambda number: "u"}, ["unique", "must return Unique"]),
        ({"unique": lambda number: Unique("u", "ignore")}, ["unique.on_conflict", "skip, replace"]),  # type: ignore[arg-type]
    ],
    ids=["key raises", "key is no text", "unique is no Unique", "unique is wrong"],
)
async def test_a_function_that_returns_no_key_is_named(
    app: Tidemill, options: dict[str, Any], says: list[str]
) -> None:
    @app.task(name="test:computed", **options)
    def work(number: int) -> None: ...

    with pytest.raises(InvalidJob) as caught:
        await work.enqueue(1)
    assert all(part in str(caught.value) for part in says), str(caught.value)
    await _nothing_stored(app)


def _register(app: Tidemill) -> Task[..., int]:
    @app.task(name="test:work")
    def work(number: int, label: str = "") -> int:
        return number

    return work


async def _nothing_stored(app: Tidemill) -> None:
    assert (await app.store.find(Filter())).jobs == ()
