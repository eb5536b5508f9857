"""A thousand articles of all lengths, half of them Chinese, each with a unique word."""

from __future__ import annotations

# ruff: noqa: RUF001 - Chinese punctuation
import random

from sqlalchemy import insert

from tests.apps.articles.service_kit import Bench

ENGLISH = "The miller waits until the sea has fallen far enough, then lets the pond run out under the wheel. "
CHINESE = "磨坊主等海面降得足够低，再放水冲动水轮；潮水每天晚来五十分钟。"


def content(number: int, draws: random.Random) -> str:
    sentence = CHINESE if number % 2 else ENGLISH
    paragraphs = [sentence * draws.randint(1, 12) for _ in range(draws.choice((1, 1, 2, 3, 4, 6, 9)))]
    return f"# 第{number}篇 article{number}\n\n" + "\n\n".join(paragraphs)


async def fill(bench: Bench, count: int) -> list[int]:
    """Fills the table like an existing blog: rows with texts and nothing else."""
    draws = random.Random(7)
    rows = [
        {"title": f"第{number}篇", "content": content(number, draws), "hide": "0"}
        for number in range(1, count + 1)
    ]
    await bench.posts.prepare()
    async with bench.posts.database.transaction() as connection:
        await connection.execute(insert(bench.posts.table), rows)
    return list(range(1, count + 1))
