"""The two calls that cost money, each a paid step of its job: asked once, and found again by every later
attempt, with the provider's answer as it came.

An answer that is of no use was paid for as well. It is kept as the step's result like any other, so that a
retry does not buy it again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemill import Context, Pool
from tidemill_apps.common.providers.calls import AnswerUnusable
from tidemill_apps.common.providers.chat import Chat
from tidemill_apps.common.providers.embeddings import Embeddings
from tidemill_apps.music.prompt import SCHEMA, SYSTEM, question
from tidemill_apps.music.songs import Song


class Reply(msgspec.Struct, frozen=True):
    """What the model wrote, and in which generation of the job it was asked. With a `problem` it is what came
    instead."""

    text: str
    generation: int
    problem: str | None = None


class Vectors(msgspec.Struct, frozen=True):
    """One for each text in its place, or None."""

    vectors: list[list[float] | None]
    problem: str | None = None


async def ask_metadata(
    ctx: Context, chat: Chat, calls: Pool, songs: Sequence[Song], number: int = 0
) -> Reply:
    """The request was taken with the claim of the job; what is not needed is given back. Another `number` is
    another question, with the same words."""
    asked = False
    name = f"metadata {number}" if number else "metadata"

    async def ask(batch: list[Song]) -> Reply:
        nonlocal asked
        asked = True
        ctx.used(calls, requests=1)
        try:
            completed = await chat.complete(SYSTEM, question(batch), SCHEMA, mark=f"{ctx.job_id} {name}")
        except AnswerUnusable as error:
            ctx.used(calls, error.response, requests=0)
            return Reply(str(getattr(error.response, "text", "")), ctx.generation, str(error))
        ctx.used(calls, completed.response, requests=0)
        return Reply(completed.text, ctx.generation)

    reply = await ctx.step(name, ask, list(songs), paid=True)
    if not asked:
        ctx.used(calls, requests=0)
    return reply


async def ask_vectors(ctx: Context, embeddings: Embeddings, calls: Pool, texts: Sequence[str]) -> Vectors:
    """As above. Whoever calls has taken the request."""
    asked = False

    async def ask(batch: list[str]) -> Vectors:
        nonlocal asked
        asked = True
        ctx.used(calls, requests=1)
        try:
            embedded = await embeddings.embed(batch, mark=f"{ctx.job_id} vectors")
        except AnswerUnusable as error:
            ctx.used(calls, error.response, requests=0)
            return Vectors([None] * len(batch), str(error))
        ctx.used(calls, embedded.response, requests=0)
        return Vectors(embedded.vectors)

    found = await ctx.step("vectors", ask, list(texts), paid=True)
    if not asked:
        ctx.used(calls, requests=0)
    return found
