"""The three tasks that describe and embed a batch of songs. Each paid call is a step with a checkpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypedDict

import msgspec

from tidemill import Context, GiveUp, Pool, Retry, Task, Tidemill
from tidemill_apps.common.database import DatabaseUnavailable
from tidemill_apps.common.model_clients import AnswerUnusable, ChatModel, EmbeddingModel
from tidemill_apps.music.connections import MusicConnections
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import EMBEDDING_QUEUE, FULL_QUEUE, METADATA_QUEUE, MusicPools
from tidemill_apps.music.llm import (
    ANSWER_SCHEMA,
    SYSTEM_PROMPT,
    ModelAnswer,
    UnreadableAnswer,
    build_description,
    format_songs,
    format_vector_text,
    parse_answer,
)
from tidemill_apps.music.tables import WAITING_STATUSES, Song, SongDescription, SongOutcome, SongStatus


class ModelReply(msgspec.Struct, frozen=True):
    """The checkpoint of a call to the chat model.

    - `generation`: the generation of the job in which the call was made.
    - `problem`: why the answer is unusable; `text` is then the whole response.
    """

    text: str
    generation: int
    problem: str | None = None


class VectorReply(msgspec.Struct, frozen=True):
    """The checkpoint of a call to the embeddings API. `vectors` has one vector per text, or None for a
    missing one. `problem` says why the whole answer is unusable."""

    vectors: list[list[float] | None]
    problem: str | None = None


async def request_descriptions(
    ctx: Context, chat: ChatModel, calls: Pool, songs: Sequence[Song], number: int = 0
) -> ModelReply:
    """Asks the chat model to describe the songs, in a step with a checkpoint. If the checkpoint exists, the
    units reserved for the call are given back. A new `number` makes a new call."""
    asked = False
    name = f"metadata {number}" if number else "metadata"

    async def ask(batch: list[Song]) -> ModelReply:
        nonlocal asked
        asked = True
        ctx.used(calls, requests=1)
        try:
            completed = await chat.complete(
                SYSTEM_PROMPT, format_songs(batch), ANSWER_SCHEMA, call_id=f"{ctx.job_id} {name}"
            )
        except AnswerUnusable as error:
            ctx.used(calls, error.response, requests=0)
            return ModelReply(str(getattr(error.response, "text", "")), ctx.generation, str(error))
        ctx.used(calls, completed.response, requests=0)
        return ModelReply(completed.text, ctx.generation)

    reply = await ctx.step(name, ask, list(songs), paid=True)
    if not asked:
        ctx.used(calls, requests=0)
    return reply


async def request_vectors(
    ctx: Context, embeddings: EmbeddingModel, calls: Pool, texts: Sequence[str]
) -> VectorReply:
    """Asks the embeddings API for one vector per text, in a step with a checkpoint. The caller must have
    reserved the call. If the checkpoint exists, the reserved units are given back."""
    asked = False

    async def ask(batch: list[str]) -> VectorReply:
        nonlocal asked
        asked = True
        ctx.used(calls, requests=1)
        try:
            embedded = await embeddings.embed(batch, call_id=f"{ctx.job_id} vectors")
        except AnswerUnusable as error:
            ctx.used(calls, error.response, requests=0)
            return VectorReply([None] * len(batch), str(error))
        ctx.used(calls, embedded.response, requests=0)
        return VectorReply(embedded.vectors)

    found = await ctx.step("vectors", ask, list(texts), paid=True)
    if not asked:
        ctx.used(calls, requests=0)
    return found


NO_VECTOR_PROBLEM = "the provider gave no usable vector for it"


class BatchCount(TypedDict):
    """The result of a job. `count` is the number of songs of the batch that have reached the job's target
    status, for example COMPLETED."""

    count: int


async def analyze_songs(  # noqa: PLR0917 - every argument has its own type
    ctx: Context,
    library: Library,
    chat: ChatModel,
    embeddings: EmbeddingModel,
    calls: Pool,
    songs: Sequence[Song],
) -> BatchCount:
    """Describes and embeds the songs, with two provider calls. Returns the number of completed songs."""
    async with _take_songs(ctx, library, calls, songs) as mine:
        if mine:
            answer = await _request_answer(ctx, library, chat, calls, songs)
            await ctx.progress(0.5, "embedding")
            await library.save(
                ctx.job_id, await _embed_answer(ctx, library, embeddings, calls, songs, answer)
            )
        return {"count": await library.count_with_status(songs, SongStatus.COMPLETED)}


async def describe_songs(
    ctx: Context, library: Library, chat: ChatModel, calls: Pool, songs: Sequence[Song]
) -> BatchCount:
    """Describes the songs, with one provider call. Returns the number of described or completed songs.
    Another job makes the vectors."""
    async with _take_songs(ctx, library, calls, songs) as mine:
        if mine:
            answer = await _request_answer(ctx, library, chat, calls, songs)
            said = _build_descriptions(answer)
            outcomes = [SongOutcome(navidrome_id=id_, description=said[id_]) for id_ in said]
            await library.save(ctx.job_id, outcomes + _problem_outcomes(answer))
        return {"count": await library.count_with_status(songs, SongStatus.DESCRIBED, SongStatus.COMPLETED)}


async def embed_songs(
    ctx: Context, library: Library, embeddings: EmbeddingModel, calls: Pool, songs: Sequence[Song]
) -> BatchCount:
    """Embeds songs that have a description, with one provider call. Returns the number of completed songs."""
    async with _take_songs(ctx, library, calls, songs, of=(SongStatus.DESCRIBED,)) as mine:
        if mine:
            rows = await library.load_rows([song.navidrome_id for song in mine])
            texts = {
                row.navidrome_id: format_vector_text(row.song, row.description or "", row.tags)
                for row in rows
            }
            found = await _request_checked_vectors(ctx, library, embeddings, calls, texts)
            await library.save(ctx.job_id, [_vector_outcome(id_, None, found) for id_ in texts])
        return {"count": await library.count_with_status(songs, SongStatus.COMPLETED)}


@asynccontextmanager
async def _take_songs(
    ctx: Context,
    library: Library,
    calls: Pool,
    songs: Sequence[Song],
    of: Sequence[SongStatus] = WAITING_STATUSES,
) -> AsyncIterator[list[Song]]:
    """Marks the songs as processing and yields the songs that this job holds. If it holds none, the units
    reserved for the call are given back. If the `async with` block fails, the songs wait for the next
    attempt."""
    mine = await library.mark_processing(songs, ctx.job_id, of=of)
    if not mine:
        ctx.used(calls, requests=0)
    try:
        yield mine
    except BaseException as error:
        with suppress(DatabaseUnavailable):  # the songs keep their status and their job
            await library.return_to_waiting(ctx.job_id, str(error) if isinstance(error, Exception) else "")
        raise


async def _request_answer(
    ctx: Context, library: Library, chat: ChatModel, calls: Pool, songs: Sequence[Song]
) -> ModelAnswer:
    """Returns the chat model's parsed answer for the batch. If the answer is unusable, the songs are marked
    as failed and the job fails without a retry. `songs` must be the whole batch: a different question has no
    checkpoint and would be paid for again."""
    number = 0
    while True:
        reply = await request_descriptions(ctx, chat, calls, songs, number)
        try:
            answer = _parse_reply(reply, songs)
        except UnreadableAnswer as error:
            if reply.generation == ctx.generation:
                told = f"the model's answer cannot be used: {error}"
                await library.mark_failed(ctx.job_id, told, reply.text)
                raise GiveUp(f"{told}; it is kept with the songs; retry the job to ask again") from error
            number += 1  # an operator retried the job, so ask again
        else:
            _log_answer_problems(ctx, answer)
            return answer


def _parse_reply(reply: ModelReply, songs: Sequence[Song]) -> ModelAnswer:
    if reply.problem is not None:
        raise UnreadableAnswer(reply.problem)
    return parse_answer(reply.text, [song.navidrome_id for song in songs])


def _log_answer_problems(ctx: Context, answer: ModelAnswer) -> None:
    for navidrome_id, problem in answer.problems.items():
        ctx.log(f"song {navidrome_id}: {problem}")
    if answer.unknown_ids:
        ctx.log(f"ignored, because they were not requested: {', '.join(answer.unknown_ids)}")


async def _embed_answer(  # noqa: PLR0917 - as above
    ctx: Context,
    library: Library,
    embeddings: EmbeddingModel,
    calls: Pool,
    songs: Sequence[Song],
    answer: ModelAnswer,
) -> list[SongOutcome]:
    said = _build_descriptions(answer)
    texts = {
        song.navidrome_id: format_vector_text(song, one.description, one.tags)
        for song in songs
        if (one := said.get(song.navidrome_id))
    }
    found: Mapping[str, _VectorOrProblem] = {}
    if texts:
        async with ctx.spend(calls, requests=1):
            found = await _request_checked_vectors(ctx, library, embeddings, calls, texts)
    return [_vector_outcome(id_, said[id_], found) for id_ in texts] + _problem_outcomes(answer)


_VectorOrProblem = tuple[list[float] | None, str | None]


async def _request_checked_vectors(
    ctx: Context, library: Library, embeddings: EmbeddingModel, calls: Pool, texts: Mapping[str, str]
) -> dict[str, _VectorOrProblem]:
    """Returns a pair of vector and problem per song id; one of the two is None. `texts` maps song ids to the
    texts to embed."""
    found = await request_vectors(ctx, embeddings, calls, list(texts.values()))
    usual = None if embeddings.dimensions else await library.find_vector_length()
    return {
        id_: _check_vector_length(vector, usual, found.problem or NO_VECTOR_PROBLEM)
        for id_, vector in zip(texts, found.vectors, strict=True)
    }


def _check_vector_length(vector: list[float] | None, usual: int | None, problem: str) -> _VectorOrProblem:
    """Returns (vector, None) if the vector can be used, and (None, problem) if it is missing or its length is
    not `usual`. `usual=None` accepts every length."""
    if vector is None:
        return None, problem
    if usual is None or len(vector) == usual:
        return vector, None
    return None, (
        f"its vector has {len(vector)} numbers and those of the library have {usual}; set the model back, or "
        f"if this one is meant set MUSIC_EMBEDDINGS_DIMENSIONS={len(vector)}"
    )


def _vector_outcome(
    id_: str, description: SongDescription | None, found: Mapping[str, _VectorOrProblem]
) -> SongOutcome:
    vector, problem = found[id_]
    return SongOutcome(navidrome_id=id_, description=description, vector=vector, problem=problem)


def _build_descriptions(answer: ModelAnswer) -> dict[str, SongDescription]:
    return {id_: build_description(analysis) for id_, analysis in answer.analyses.items()}


def _problem_outcomes(answer: ModelAnswer) -> list[SongOutcome]:
    return [SongOutcome(navidrome_id=id_, problem=problem) for id_, problem in answer.problems.items()]


TASK_RETRY = Retry(attempts=3, first=5.0)
TASK_TIMEOUT_SECONDS = 600.0
WARN_PAYLOAD_BYTES = 64_000
"""A batch of a hundred songs is legitimate."""
TASK_NAMES = {FULL_QUEUE: "batch-analyze", METADATA_QUEUE: "batch-describe", EMBEDDING_QUEUE: "batch-embed"}


LeftOutCallback = Callable[[str], Awaitable[None]]
"""Called with the queue if a job did not finish all songs of its batch."""


def declare_tasks(
    app: Tidemill,
    pools: MusicPools,
    library: Library,
    connections: MusicConnections,
    left_out: LeftOutCallback,
) -> dict[str, Task[Any, Any]]:
    """Declares the three tasks and returns a mapping from queue name to task. `left_out` is called with the
    queue name if a job did not finish all songs of its batch."""
    calls = pools.calls

    async def check_left_out(queue: str, result: BatchCount, songs: list[Song]) -> BatchCount:
        if result["count"] < len(songs):
            await left_out(queue)
        return result

    async def analyze(ctx: Context, correlationId: str, songs: list[Song]) -> BatchCount:  # noqa: ARG001, N803 - the payload's own names
        services = await connections.open()
        result = await analyze_songs(ctx, library, services.chat, services.embeddings, calls, songs)
        return await check_left_out(FULL_QUEUE, result, songs)

    async def describe(ctx: Context, correlationId: str, songs: list[Song]) -> BatchCount:  # noqa: ARG001, N803 - as above
        services = await connections.open()
        return await check_left_out(
            METADATA_QUEUE, await describe_songs(ctx, library, services.chat, calls, songs), songs
        )

    async def embed(ctx: Context, correlationId: str, songs: list[Song]) -> BatchCount:  # noqa: ARG001, N803 - as above
        services = await connections.open()
        return await check_left_out(
            EMBEDDING_QUEUE, await embed_songs(ctx, library, services.embeddings, calls, songs), songs
        )

    return {
        queue: app.task(
            name=TASK_NAMES[queue],
            queue=queue,
            pool=[calls, pools.starts[queue]],
            retry=TASK_RETRY,
            timeout=TASK_TIMEOUT_SECONDS,
            warn_bytes=WARN_PAYLOAD_BYTES,
        )(handler)
        for queue, handler in ((FULL_QUEUE, analyze), (METADATA_QUEUE, describe), (EMBEDDING_QUEUE, embed))
    }
