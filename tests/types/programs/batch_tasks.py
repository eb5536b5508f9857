"""Types of batch tasks: a handler takes a list, a job is one item of it."""

from __future__ import annotations

from datetime import timedelta
from typing import reveal_type

from tidemill import Context, FailedItem, Limit, Retry, Tidemill, Unique, split_into_chunks

app = Tidemill("memory://")
voyage = app.pool("voyage", Limit.tokens(1_000, per="minute"))


@app.batch_task(
    queue="embed",
    pool=voyage,
    max_items=128,
    max_units={"tokens": 900},
    linger=0.2,
    on_error="bisect",
    cost={"tokens": 20},
    item_cost=lambda text: {"tokens": len(text)},
    retry=Retry(attempts=2),
    timeout=timedelta(minutes=1),
    key=lambda text: text[:1],
    unique=lambda text: Unique(f"text {text}"),
)
async def embed(texts: list[str]) -> list[list[float] | FailedItem]:
    return [FailedItem("empty", retry=False) if not text else [0.5] for text in texts]


@app.batch_task(max_items=3)
async def with_context(ctx: Context, numbers: list[int]) -> list[str]:
    return [f"{id_} {number}" for id_, number in zip(ctx.batch, numbers, strict=True)]


@app.batch_task(max_items=3, on_error="singles", isolate=True)
def plain(numbers: list[int]) -> list[float | None]:
    return [number / 2 for number in numbers]


# fmt: off
async def what_an_editor_shows() -> None:
    reveal_type(embed)  # reveals: Task[(str), list[float]]
    reveal_type(with_context)  # reveals: Task[(int), str]
    reveal_type(plain)  # reveals: Task[(int), float | None]
    job = await embed.enqueue("a")
    reveal_type(await job.result())  # reveals: list[float]
    reveal_type(split_into_chunks(["a"], 2, at=1.0)[0].items)  # reveals: list[str]


# fmt: on
async def right() -> None:
    await app.enqueue_many([embed.job("a"), embed.using(priority=1).job("b")])
    for id_, numbers in split_into_chunks([1, 2, 3], 2, at=0.0):
        await with_context.using(trace=id_).enqueue(numbers[0])


async def wrong() -> None:
    await embed.enqueue(1)  # expect: arg-type, reportArgumentType
    await embed.enqueue(["a"])  # expect: arg-type, reportArgumentType
    await embed.enqueue("a", "b")  # expect: call-arg, reportCallIssue
    await embed.enqueue(texts="a")  # expect: call-arg, reportCallIssue
    await embed.enqueue()  # expect: call-arg, reportCallIssue
    app.batch_task()  # expect: call-arg, reportCallIssue
    app.batch_task(max_items="many")  # expect: arg-type, reportArgumentType
    app.batch_task(max_items=3, on_error="halve")  # expect: arg-type, reportArgumentType
    app.batch_task(max_items=3, batch_waits=1)  # expect: call-arg, reportCallIssue
    FailedItem("a", again=True)  # expect: call-arg, reportCallIssue
    split_into_chunks([1], "two", at=0)  # expect: arg-type, reportArgumentType
