"""What jobs do with a batch of songs: all of it, the description only, the vector only.

Songs are PROCESSING while an attempt runs. An attempt that ends without an outcome (a refused call, a pool
without units, a provider that is away, a worker that stops) puts them back to waiting and leaves them to
their job, which comes again. What becomes of songs whose job is over is decided where jobs are looked at: a
handler cannot know whether it was the last attempt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypedDict

from tidemill import Context, GiveUp, Pool, SnoozeFor
from tidemill_apps.common.database import DatabaseUnavailable
from tidemill_apps.common.providers.chat import Chat
from tidemill_apps.common.providers.embeddings import Embeddings
from tidemill_apps.music.answers import Answer, Unreadable, read_answer
from tidemill_apps.music.asking import Reply, ask_metadata, ask_vectors
from tidemill_apps.music.describing import Description, described, vector_text
from tidemill_apps.music.library import Library
from tidemill_apps.music.outcomes import Outcome
from tidemill_apps.music.rows import WAITING
from tidemill_apps.music.songs import Song, Status

NO_VECTOR = "the provider gave no usable vector for it"
AWAY = 15.0
"""Seconds until it is tried again whether the database is back."""


class Counted(TypedDict):
    """How many songs of the batch have what they were to get."""

    count: int


async def analyse(  # noqa: PLR0917 - each is of a kind of its own
    ctx: Context, library: Library, chat: Chat, embeddings: Embeddings, calls: Pool, songs: Sequence[Song]
) -> Counted:
    """Description and vector: two calls."""
    async with _having(ctx, library, calls, songs) as mine:
        if mine:
            answer = await _answer(ctx, library, chat, calls, songs)
            await ctx.progress(0.5, "embedding")
            await library.save(ctx.job_id, await _whole(ctx, library, embeddings, calls, songs, answer))
        return {"count": await library.have(songs, Status.COMPLETED)}


async def describe(ctx: Context, library: Library, chat: Chat, calls: Pool, songs: Sequence[Song]) -> Counted:
    """The description: one call. The vector is left to another job."""
    async with _having(ctx, library, calls, songs) as mine:
        if mine:
            answer = await _answer(ctx, library, chat, calls, songs)
            said = _descriptions(answer)
            outcomes = [Outcome(navidrome_id=id_, description=said[id_]) for id_ in said]
            await library.save(ctx.job_id, outcomes + _without(answer))
        return {"count": await library.have(songs, Status.DESCRIBED, Status.COMPLETED)}


async def embed(
    ctx: Context, library: Library, embeddings: Embeddings, calls: Pool, songs: Sequence[Song]
) -> Counted:
    """The vector of songs that are described: one call."""
    async with _having(ctx, library, calls, songs, of=(Status.DESCRIBED,)) as mine:
        if mine:
            rows = await library.stored([song.navidrome_id for song in mine])
            texts = {row.navidrome_id: vector_text(row.song, row.description or "", row.tags) for row in rows}
            found = await _vectors(ctx, library, embeddings, calls, texts)
            await library.save(ctx.job_id, [_embedded(id_, None, found) for id_ in texts])
        return {"count": await library.have(songs, Status.COMPLETED)}


@asynccontextmanager
async def _having(
    ctx: Context, library: Library, calls: Pool, songs: Sequence[Song], of: Sequence[Status] = WAITING
) -> AsyncIterator[list[Song]]:
    """The songs among them that this job has: none of them is any other's meanwhile. With none there is
    nothing to pay for. While the database is away the job waits for it: that is no fault of its own, and what
    it has paid for it will find again."""
    try:
        mine = await library.mark_processing(songs, ctx.job_id, of=of)
        if not mine:
            ctx.used(calls, requests=0)
        try:
            yield mine
        except BaseException as error:
            with suppress(DatabaseUnavailable):  # the songs stay as they are, and their job's all the same
                await library.wait(ctx.job_id, str(error) if isinstance(error, Exception) else "")
            raise
    except DatabaseUnavailable as error:
        raise SnoozeFor(AWAY, str(error)) from None  # what it was raised from would be read as the provider's


async def _answer(ctx: Context, library: Library, chat: Chat, calls: Pool, songs: Sequence[Song]) -> Answer:
    """About every song of the batch, also those that are somebody else's by now: what is asked must be the
    same in every attempt, or it is paid for again."""
    number = 0
    while True:
        reply = await ask_metadata(ctx, chat, calls, songs, number)
        try:
            answer = _read(reply, songs)
        except Unreadable as error:
            if reply.generation == ctx.generation:
                told = f"the model's answer cannot be used: {error}"
                await library.fail(ctx.job_id, told, reply.text)
                raise GiveUp(f"{told}; it is kept with the songs; retry the job to ask again") from error
            number += 1  # a person has retried the job to have it asked again
        else:
            _tell(ctx, answer)
            return answer


def _read(reply: Reply, songs: Sequence[Song]) -> Answer:
    if reply.problem is not None:
        raise Unreadable(reply.problem)
    return read_answer(reply.text, [song.navidrome_id for song in songs])


def _tell(ctx: Context, answer: Answer) -> None:
    for navidrome_id, problem in answer.problems.items():
        ctx.log(f"song {navidrome_id}: {problem}")
    if answer.strangers:
        ctx.log(f"refused, because nobody asked about them: {', '.join(answer.strangers)}")


async def _whole(  # noqa: PLR0917 - as above
    ctx: Context,
    library: Library,
    embeddings: Embeddings,
    calls: Pool,
    songs: Sequence[Song],
    answer: Answer,
) -> list[Outcome]:
    said = _descriptions(answer)
    texts = {
        song.navidrome_id: vector_text(song, one.description, one.tags)
        for song in songs
        if (one := said.get(song.navidrome_id))
    }
    found: Mapping[str, _Found] = {}
    if texts:
        async with ctx.spend(calls, requests=1):
            found = await _vectors(ctx, library, embeddings, calls, texts)
    return [_embedded(id_, said[id_], found) for id_ in texts] + _without(answer)


_Found = tuple[list[float] | None, str | None]


async def _vectors(
    ctx: Context, library: Library, embeddings: Embeddings, calls: Pool, texts: Mapping[str, str]
) -> dict[str, _Found]:
    """By song, each with the problem there is when it is none. One that is missing moves no other."""
    found = await ask_vectors(ctx, embeddings, calls, list(texts.values()))
    usual = None if embeddings.dimensions else await library.vector_length()
    return {
        id_: _fitting(vector, usual, found.problem or NO_VECTOR)
        for id_, vector in zip(texts, found.vectors, strict=True)
    }


def _fitting(vector: list[float] | None, usual: int | None, problem: str) -> _Found:
    """No search finds a vector of another length than the others."""
    if vector is None:
        return None, problem
    if usual is None or len(vector) == usual:
        return vector, None
    return None, (
        f"its vector has {len(vector)} numbers and those of the library have {usual}; set the model back, or "
        f"if this one is meant set MUSIC_EMBEDDINGS_DIMENSIONS={len(vector)}"
    )


def _embedded(id_: str, description: Description | None, found: Mapping[str, _Found]) -> Outcome:
    vector, problem = found[id_]
    return Outcome(navidrome_id=id_, description=description, vector=vector, problem=problem)


def _descriptions(answer: Answer) -> dict[str, Description]:
    return {id_: described(analysis) for id_, analysis in answer.analyses.items()}


def _without(answer: Answer) -> list[Outcome]:
    return [Outcome(navidrome_id=id_, problem=problem) for id_, problem in answer.problems.items()]
