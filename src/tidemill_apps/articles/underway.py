"""An article under way in a batch: which of its chunks are written, and how they are labelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from tidemill_apps.articles.chunks import Chunk, Chunking
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.standing import Finished
from tidemill_apps.articles.vectors import Piece

UNKNOWN = -1
"""No article has this label: vectors of which nobody knows the label are labelled again."""


class Input(msgspec.Struct, frozen=True):
    piece: Piece
    tokens: int


class Underway(msgspec.Struct):
    """`left` are the chunks that are not written yet. `lost`: the article is another run's by now."""

    post: Post
    chunks: list[Chunk]
    left: set[int]
    label: int | None = None
    has_written: bool = False
    lost: bool = False

    @property
    def inputs(self) -> list[Input]:
        return [Input(self._piece(index), self.chunks[index].tokens) for index in sorted(self.left)]

    def wrote(self, index: int, label: int | None) -> None:
        """`label` is None for what an earlier attempt wrote. Labels only grow: the first is the oldest."""
        self.left.discard(index)
        self.has_written = self.has_written or label is not None
        if label is None:
            self.label = UNKNOWN
        elif self.label is None:
            self.label = label

    def finished(self) -> Finished:
        label = self.post.rag_label if self.label is None else self.label
        return Finished(self.post.id, self.post.rag_version, len(self.chunks), label, self.post.rag_run)

    def _piece(self, index: int) -> Piece:
        version = self.post.rag_version
        return Piece(post_id=self.post.id, version=version, index=index, text=self.chunks[index].text)


async def take_up(posts: Sequence[Post], chunking: Chunking) -> dict[int, Underway]:
    """Away from the event loop: a long text takes some tenths of a second."""
    return await asyncio.to_thread(_taken_up, posts, chunking)


def _taken_up(posts: Sequence[Post], chunking: Chunking) -> dict[int, Underway]:
    found = {}
    for post in posts:
        chunks = chunking.of(post.content)
        found[post.id] = Underway(post, chunks, set(range(len(chunks))))
    return found
