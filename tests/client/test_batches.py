"""Batch tasks as a program declares them, and their jobs: one item each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tidemill import (
    ConfigurationError,
    Context,
    FailedItem,
    InvalidJob,
    InvalidPayload,
    Limit,
    Tidemill,
    Unique,
)
from tidemill.core.batching import BatchPolicy
from tidemill.core.needs import Need

TOKENS = Limit.tokens(1000, per="minute")


@dataclass
class Text:
    words: str
    language: str = "en"


@dataclass
class Vector:
    numbers: list[float]


@pytest.fixture
def code() -> Tidemill:
    return Tidemill("memory://")


async def texts_to_vectors(texts: list[Text]) -> list[Vector | FailedItem]:
    return [Vector([float(len(text.words))]) for text in texts]


def test_a_job_carries_one_item_and_how_it_shares_calls(code: Tidemill) -> None:
    voyage = code.pool("voyage", TOKENS, Limit.requests(10, per="minute"))
    embed = code.batch_task(
        name="embed",
        max_items=128,
        max_units={"tokens": 900},
        linger=timedelta(seconds=2),
        pool=voyage,
        cost={"tokens": 20},
        item_cost=lambda text: {"tokens": len(text.words)},
        key=lambda text: text.language,
        unique=lambda text: Unique(text.words),
    )(texts_to_vectors)
    job = embed.job(Text("hello", "fr")).job
    assert job.payload == b'{"item":{"words":"hello","language":"fr"}}'
    assert job.needs == (Need("voyage", None, {"tokens": 5}),)
    assert job.key == "fr"
    assert job.unique == Unique("hello")
    assert job.batching == BatchPolicy(
        max_items=128, linger=2.0, max_units={"tokens": 900}, call={"voyage": {"tokens": 20}}
    )
    assert embed.using(cost={"tokens": 7}).job(Text("hello")).job.needs[0].units == {"tokens": 7}


def test_a_keyed_pool_takes_its_key_from_the_item(code: Tidemill) -> None:
    site = code.pool("site", Limit.requests(1, per="second"), keyed=True)
    embed = code.batch_task(max_items=5, pool=site.by(lambda text: text.language))(texts_to_vectors)
    assert embed.job(Text("a", "fr")).job.needs == (Need("site", "fr", {}),)


def test_the_plain_function_is_called_with_a_list(code: Tidemill) -> None:
    @code.batch_task(max_items=2)
    def double(numbers: list[int]) -> list[int]:
        return [2 * number for number in numbers]

    assert double([1, 2]) == [2, 4]


def test_an_item_is_checked_like_any_argument(code: Tidemill) -> None:
    embed: Any = code.batch_task(max_items=5, name="embed")(texts_to_vectors)
    with pytest.raises(InvalidPayload, match=r"task 'embed': item: must be a Text \(words, language\), is"):
        embed.job("hello")
    with pytest.raises(InvalidPayload, match="task 'embed'"):
        embed.job(Text("a"), Text("b"))
    with pytest.raises(InvalidPayload, match="task 'embed'"):
        embed.job()


async def test_the_result_of_a_job_is_one_element_of_the_list(app: Tidemill) -> None:
    embed = app.batch_task(max_items=5)(texts_to_vectors)
    job = await embed.enqueue(Text("hello"))
    await app.worker(until_idle=True, heartbeat_thread=False).run()
    assert await job.result(timeout=5) == Vector([5.0])


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("x" * 981, r"pool 'voyage': cost: 1001 tokens is more than the pool ever allows at once"),
        ("x" * 901, r"item_cost: 901 tokens is more than max_units allows a call \(900\)"),
    ],
)
def test_an_item_no_call_could_take_is_refused_with_its_job(code: Tidemill, item: str, words: str) -> None:
    voyage = code.pool("voyage", Limit.tokens(1000, per="minute", shape="bucket"))

    @code.batch_task(
        name="embed",
        max_items=128,
        pool=voyage,
        max_units={"tokens": 900},
        cost={"tokens": 20},
        item_cost=lambda text: {"tokens": len(text)},
    )
    async def embed(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    assert embed.job("x").job.needs
    with pytest.raises(InvalidJob, match=f"task 'embed': {words}"):
        embed.job(item)


@pytest.mark.parametrize(
    ("item_cost", "words"),
    [
        (
            lambda text: {"tokens": 1, "words": 3},
            "item_cost: no pool counts words, neither the pools nor max_units",
        ),
        (lambda text: {}, "pool 'voyage': cost: says nothing of tokens"),
        (lambda text: 3, "cost: must be amounts by unit"),
        (lambda text: 1 / 0, "item_cost: the function given to task 'embed' raised ZeroDivisionError"),
    ],
)
def test_the_value_of_an_item_function_is_checked(
    code: Tidemill, item_cost: Callable[[Any], Any], words: str
) -> None:
    voyage = code.pool("voyage", TOKENS)
    embed = code.batch_task(name="embed", max_items=5, pool=voyage, item_cost=item_cost)(texts_to_vectors)
    with pytest.raises(InvalidJob, match=words):
        embed.job(Text("a"))


async def no_annotation(texts) -> list[int]:  # type: ignore[no-untyped-def]
    return []


async def not_a_list(texts: str) -> list[int]:
    return []


async def bare_list(texts: list) -> list[int]:  # type: ignore[type-arg]
    return []


async def no_result(texts: list[str]):  # type: ignore[no-untyped-def]
    return []


async def result_is_no_list(texts: list[str]) -> int:
    return 0


async def result_is_none(texts: list[str]) -> None: ...


async def two_lists(texts: list[str], more: list[str]) -> list[int]:
    return []


async def nothing_at_all() -> list[int]:
    return []


async def late_context(texts: list[str], ctx: Context) -> list[int]:
    return []


async def generator(texts: list[str]) -> Any:
    yield []


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (
            no_annotation,
            r"parameter texts: must be annotated as a list with the type of its items.*not annot",
        ),
        (not_a_list, r"parameter texts: must be annotated as a list .* is str"),
        (bare_list, r"parameter texts: must be annotated as a list .* is list"),
        (no_result, r"return: must be annotated as a list with a result for each item.*is not annotated"),
        (result_is_no_list, r"return: must be annotated as .* is int"),
        (result_is_none, r"return: must be annotated as .* is NoneType"),
        (two_lists, r"a batch handler takes one list of items, .* has 2 parameters"),
        (nothing_at_all, r"a batch handler takes one list of items, .* has 0 parameters"),
        (late_context, r"parameter ctx: a handler takes one Context; put it first"),
        (generator, r"the handler is a generator"),
        (7, r"7 is not a function; decorate one with @app.batch_task\(max_items=…\)"),
    ],
)
def test_a_handler_that_cannot_take_batches_is_refused(code: Tidemill, handler: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        code.batch_task(max_items=3)(handler)
    assert not code.tasks


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_items": 0}, "max_items: must be a whole number, 1 or more, is 0"),
        ({"max_items": 2.5}, "max_items: must be a whole number"),
        ({"max_items": 10**9}, "max_items: must lie between 1 and"),
        ({"linger": -1}, "linger: must be 0 or more seconds, is -1"),
        ({"linger": "1s"}, "linger: must be a number of seconds or a timedelta"),
        ({"on_error": "halve"}, "on_error: must be bisect, singles or fail, is 'halve'"),
        ({"max_units": {"tokens": 0}}, "max_units: tokens must be a number above 0, is 0"),
        ({"max_units": 7}, "max_units: must be amounts by unit"),
        ({"max_units": {"tokens": 5}}, "max_units: needs item_cost="),
        ({"cost": {"tokens": 5}}, "cost: the task has no pool to spend it in"),
        ({"item_cost": {"tokens": 5}}, "item_cost: the task has no pool to spend it in"),
        ({"key": lambda: "a"}, "key: the function of a batch task takes one item"),
        ({"unique": lambda a, b: "a"}, "unique: the function of a batch task takes one item"),
        ({"colour": "red"}, "'colour'"),
        ({"retry": 3}, "retry: must be a Retry"),
        ({"timeout": 0}, "timeout: must be above 0"),
    ],
)
def test_a_bad_option_is_refused_by_its_name(code: Tidemill, options: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        code.batch_task(**{"max_items": 3, **options})(texts_to_vectors)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cost": {"characters": 5}}, "cost: no pool counts 'characters'; the pool counts tokens"),
        ({"cost": lambda text: {"tokens": 1}}, "cost: is what every call costs, and must be amounts by unit"),
        ({"cost": {"tokens": 2000}}, "cost: 2000 tokens is more than the pool ever allows at once"),
        ({"item_cost": {"words": 5}}, "item_cost: no pool counts words"),
        (
            {"item_cost": {"tokens": 9}, "max_units": {"tokns": 80}},
            "max_units: tokns: item_cost says nothing of it, it names tokens",
        ),
        (
            {"item_cost": {"tokens": 9}, "max_units": {"tokens": 8}},
            "item_cost: 9 tokens is more than max_units",
        ),
        ({"item_cost": 7}, "item_cost: must be amounts by unit"),
        ({}, "cost: says nothing of tokens"),
    ],
)
def test_a_bad_cost_is_refused_where_it_is_written(code: Tidemill, options: Any, words: str) -> None:
    voyage = code.pool("voyage", TOKENS)
    with pytest.raises(ConfigurationError, match=words):
        code.batch_task(max_items=3, pool=voyage, name="embed", **options)(texts_to_vectors)


def test_units_of_a_call_need_no_limit_of_a_pool(code: Tidemill) -> None:
    """A provider may limit the size of a call and meter requests only."""
    voyage = code.pool("voyage", Limit.requests(10, per="minute"))
    embed = code.batch_task(
        max_items=9, pool=voyage, max_units={"words": 9}, item_cost=lambda text: {"words": 3}
    )(texts_to_vectors)
    assert embed.job(Text("a b c")).job.needs == (Need("voyage", None, {"words": 3}),)


async def test_the_store_accepts_the_jobs_of_a_batch_task(app: Tidemill) -> None:
    voyage = app.pool("voyage", TOKENS)
    embed = app.batch_task(max_items=5, pool=voyage, item_cost={"tokens": 5})(texts_to_vectors)
    handles = await app.enqueue_many([embed.job(Text(str(n))) for n in range(3)])
    found = await app.store.get([handle.id for handle in handles])
    assert all(job is not None and job.batching is not None for job in found)
    assert {job.lane for job in found if job is not None} != {""}
