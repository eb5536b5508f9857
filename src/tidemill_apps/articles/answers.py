"""What the API takes and answers: `{status: true, data | message}`, or `{status: false, message}` (E8)."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.web import Problem
from tidemill_apps.articles.posts import Post

Data = TypeVar("Data")
Hide = Literal["0", "1"]
Title = Annotated[str, Meta(max_length=500)]


class Answer(msgspec.Struct, Generic[Data], frozen=True, kw_only=True):
    status: bool = True
    data: Data


class Said(msgspec.Struct, frozen=True, kw_only=True):
    status: bool = True
    message: str


def told(problem: Problem) -> dict[str, Any]:
    """Whatever went wrong, as the source's clients read it."""
    return {"status": False, "message": problem.detail}


class NewPost(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    title: Title
    content: str = ""
    hide: Hide = "0"


class PostChange(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What is left out stays as it is."""

    title: Title | UnsetType = UNSET
    content: str | UnsetType = UNSET
    hide: Hide | UnsetType = UNSET


class Wanted(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`ids` left out: every article that has content and is not hidden."""

    ids: Annotated[list[int], Meta(min_length=1, max_length=10_000)] | None = None


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    status: bool = True
    message: str
    data: QueuedCount


class QueuedCount(msgspec.Struct, frozen=True):
    queued: int


class ShownPost(msgspec.Struct, frozen=True, kw_only=True):
    """A row, without what is only for workers."""

    id: int
    title: str
    content: str
    hide: str
    rag_status: str | None
    rag_error: str | None


def shown(post: Post) -> ShownPost:
    return ShownPost(**{name: getattr(post, name) for name in ShownPost.__struct_fields__})
