"""The types callers see: correct calls pass mypy, wrong ones are errors on the very line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from datetime import timedelta
from typing import Any, assert_type

from tidemill import Context, JobHandle, Retention, Retry, Task, Tidemill, Unique

app = Tidemill("memory://")
app.queue("feeds", weight=5, keep_done=Retention(age=60))


@app.task
async def with_context(ctx: Context, number: int, label: str = "") -> list[str]:
    return [label] * number


@app.task(queue="feeds", retry=Retry(attempts=2), timeout=timedelta(minutes=1))
async def without_context(number: int) -> float:
    return number / 2


@app.task
def plain(number: int) -> str:
    return str(number)


@app.task(priority=1, unique=Unique("one"))
def plain_with_context(ctx: Context, *, name: str) -> bytes:
    return name.encode()


async def right() -> None:
    one = await with_context.enqueue(3, label="a")
    assert_type(one, JobHandle[list[str]])
    assert_type(await one.result(timeout=3), list[str])
    assert_type(one.result_sync(), list[str])
    assert_type(await (await without_context.enqueue(number=3)).result(), float)
    assert_type(plain.enqueue_sync(1), JobHandle[str])
    assert_type(await (await plain_with_context.enqueue(name="x")).result(), bytes)
    special = with_context.using(priority=1, delay=timedelta(seconds=1), unique=Unique("u"), tags=["a"])
    assert_type(await special.enqueue(1), JobHandle[list[str]])
    assert_type(await app.enqueue_many(plain.job(n) for n in range(3)), list[JobHandle[str]])
    await app.enqueue_many([plain.job(1), without_context.job(2)])
    assert_type(await app.job("id").result(), Any)
    short: Task[[int], str] = plain


async def wrong() -> None:
    await with_context.enqueue("three")  # error
    await with_context.enqueue(3, label=1)  # error
    await with_context.enqueue(3, colour="red")  # error
    await with_context.enqueue()  # error
    without_context.enqueue_sync([])  # error
    plain.job(None)  # error
    plain_with_context.enqueue_sync("positional")  # error
    plain.using(priority="high")  # error
    plain.using(prio=1)  # error
    plain.using(unique="key")  # error
    number: int = await (await plain.enqueue(1)).result()  # error
    app.task(queue=3)  # error
    app.task(que="feeds")  # error
    app.queue("feeds", weight="heavy")  # error
    await app.enqueue_many([1, 2])  # error
"""


def test_mypy_accepts_right_calls_and_refuses_wrong_ones(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-incremental",
        "--no-error-summary",
        str(program),
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert not found.stderr, found.stderr
    wanted = {n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# error")}
    refused = {int(n) for n in re.findall(r"^program\.py:(\d+): error", found.stdout, re.MULTILINE)}
    assert refused == wanted, found.stdout
