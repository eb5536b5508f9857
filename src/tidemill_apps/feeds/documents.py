"""Reads feed documents: RSS, Atom, RDF and JSON Feed. Runs inside the parser process only."""

from __future__ import annotations

import msgspec


class FeedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a feed document.

    - `url`: an absolute http(s) URL, or None.
    - `content`: sanitised HTML.
    - `text`: the content as plain text.
    - `published`: seconds since 1970, or None.
    - `digest`: a hash of title and content."""

    guid: str | None
    url: str | None
    title: str
    content: str
    text: str
    published: float | None
    digest: str


class FeedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A feed document.

    - `link`: the absolute http(s) URL of the web page of the feed, or None.
    - `ttl_seconds`: how long the publisher wants readers to wait; None if the document does not say.
    - `entries`: in the order of the document."""

    title: str
    link: str | None
    ttl_seconds: float | None
    entries: tuple[FeedEntry, ...]


class FeedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link from an HTML page to a feed."""

    url: str
    title: str
    content_type: str


class UnreadableFeed(Exception):
    """Raised if a document is no feed that can be read. The message is a sentence for people."""


def parse_document(body: bytes, content_type: str | None, url: str) -> FeedDocument:
    """Returns the feed in a document that was fetched from `url`. Raises UnreadableFeed if it has none."""
    raise NotImplementedError


def find_feed_links(html: str, url: str) -> list[FeedLink]:
    """Returns the feeds that an HTML page at `url` names with `<link rel=alternate>`, without repeats."""
    raise NotImplementedError
