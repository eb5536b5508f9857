"""Compares the entries of a feed document with the articles that are stored already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

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

    Pass all stored articles of the feed. An entry is matched by guid, then by URL, then by digest. A guid,
    URL or digest that several entries or several articles have identifies none of them. Entries that repeat
    another one in everything are left out."""
    distinct = list({_identity(entry): entry for entry in entries}.values())
    matches = _match(known, distinct)
    new, updated, unchanged = [], [], []
    for entry in distinct:
        article = matches.get(_identity(entry))
        if article is None:
            new.append(entry)
        elif _identity(article) == _identity(entry):
            unchanged.append(article.article_id)
        else:
            updated.append(ArticleUpdate(article.article_id, entry))
    return ArticleChanges(tuple(new), tuple(updated), tuple(unchanged))


_Item = TypeVar("_Item", KnownArticle, FeedEntry)
_Identity = tuple[str | None, str | None, str]


def _identity(item: KnownArticle | FeedEntry) -> _Identity:
    return item.guid, item.url, item.digest


def _match(known: Sequence[KnownArticle], entries: Sequence[FeedEntry]) -> dict[_Identity, KnownArticle]:
    """Returns the stored article of each entry that has one."""
    # An exact match comes first and needs no unique value: otherwise a refresh that changes nothing could
    # store an entry again.
    stored = {_identity(article): article for article in known}
    matches = {_identity(entry): stored[_identity(entry)] for entry in entries if _identity(entry) in stored}
    claimed = {article.article_id for article in matches.values()}
    for field in ("guid", "url", "digest"):
        articles = _unique(known, field)
        for value, entry in _unique(entries, field).items():
            article = articles.get(value)
            if article and article.article_id not in claimed and _identity(entry) not in matches:
                matches[_identity(entry)] = article
                claimed.add(article.article_id)
    return matches


def _unique(items: Sequence[_Item], field: str) -> dict[str, _Item]:
    """Returns the items by the values of a field that only one of them has."""
    counts = Counter(getattr(item, field) for item in items)
    return {value: item for item in items if (value := getattr(item, field)) and counts[value] == 1}
