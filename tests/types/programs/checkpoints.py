"""Types of steps with checkpoints."""

from __future__ import annotations

from functools import partial
from typing import reveal_type

from tidemill import Context, Tidemill

app = Tidemill("memory://")


async def ask(songs: list[str], temperature: float = 0.5, *, model: str = "small") -> int:
    return len(songs)


def look(title: str, year: int = 0) -> list[str]:
    return [title]


@app.task
async def describe(ctx: Context, songs: list[str]) -> int:
    reveal_type(await ctx.step("ask", ask, songs, paid=True))  # reveals: int
    reveal_type(await ctx.step("ask", ask, songs, 0.7, paid=True, on_unknown="park"))  # reveals: int
    reveal_type(await ctx.step("ask", partial(ask, songs, model="large"), paid=True))  # reveals: int
    reveal_type(await ctx.step("ask", ask, songs, model="large"))  # reveals: int
    reveal_type(await ctx.step("look", look, "Tide", paid=True))  # reveals: list[str]
    reveal_type(await ctx.step("look", look, "Tide", year=1999))  # reveals: list[str]
    await ctx.step("ask", ask, [7], paid=True)  # expect: arg-type, reportCallIssue
    await ctx.step("ask", ask, songs, modle="large")  # expect: call-arg, reportCallIssue
    await ctx.step("ask", ask, songs, paid=True, on_unknown="perhaps")  # expect: call-arg, reportCallIssue
    return 1


@app.task
def describe_plainly(ctx: Context, title: str) -> int:
    reveal_type(ctx.step_sync("look", look, title, paid=True))  # reveals: list[str]
    reveal_type(ctx.step_sync("look", look, title, year=1999))  # reveals: list[str]
    ctx.step_sync("look", look, 7)  # expect: call-overload, reportArgumentType
    return 1
