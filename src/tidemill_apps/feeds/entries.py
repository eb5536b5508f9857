"""Compares the entries of a feed document with the articles that are stored already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidemill_apps.feeds.documents import FeedEntry


class KnownArticle(NamedTuple):
    """A stored article of the feed. `guid`, `url` and `digest` are those of its last version."""

    article_id: str
    guid: str | None
    url: str | None
    digest: str


class ArticleUpdate(NamedTuple):
    """A stored article and its new version."""

    article_id: str
    entry: FeedEntry


class ArticleChanges(NamedTuple):
    """The changes that a document makes to the stored articles of its feed, in the document's order.

    - `new`: entries to insert.
    - `updated`: articles whose guid, URL, title or content changed; store all of the entry.
    - `unchanged`: ids of the articles that the document has as they are stored."""

    new: tuple[FeedEntry, ...]
    updated: tuple[ArticleUpdate, ...]
    unchanged: tuple[str, ...]


def plan_changes(known: Sequence[KnownArticle], entries: Sequence[FeedEntry]) -> ArticleChanges:
    """Returns the changes that the entries of a document make to the stored articles of its feed.

    Pass all stored articles of the feed. An entry is matched by guid, then by URL, then by digest."""
    raise NotImplementedError
