"""Sanitises the HTML of entries, turns it into plain text, and finds the feeds that a web page names."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import msgspec
import nh3

MAX_LINK_CHARACTERS = 4000
_FEED_TYPE = re.compile(r"(?:application|text)/(?:(?:rss|atom|rdf)\+xml|feed\+json|xml)")
_BLOCK_TAG = re.compile(r"</?(?:p|br|hr|div|li|d[td]|h[1-6]|tr|blockquote|pre|figure|figcaption|article)>")
_TAG = re.compile(r"<[^>]*>")
_SPACES = re.compile(r"[^\S\n]+")
_EMPTY_LINES = re.compile(r" ?\n[ \n]*")


class FeedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link from an HTML page to a feed."""

    url: str
    title: str
    content_type: str


def http_url(link: object, base: str) -> str | None:
    """Returns the link as an absolute http(s) URL, or None if it is none."""
    if not isinstance(link, str) or not link.strip():
        return None
    try:
        url = urljoin(base, link.strip())
        parts = urlsplit(url)
    except ValueError:
        return None
    usable = parts.scheme in ("http", "https") and parts.hostname and len(url) <= MAX_LINK_CHARACTERS
    return url if usable else None


def sanitise(content: str, base: str) -> str:
    """Returns the HTML without scripts, styles and unsafe links. Relative links are resolved by `base`."""
    return nh3.clean(
        content,
        link_rel="noopener noreferrer nofollow",
        url_schemes={"http", "https"},
        url_relative=lambda link: http_url(link, base),
    ).strip()


def html_to_text(content: str) -> str:
    """Returns the text of any HTML, with a line for each block."""
    plain = nh3.clean(content, attributes={}, link_rel=None)
    text = html.unescape(_TAG.sub("", _BLOCK_TAG.sub("\n", plain)))
    return _EMPTY_LINES.sub("\n", _SPACES.sub(" ", text)).strip()


def find_feed_links(page: str, url: str) -> list[FeedLink]:
    """Returns the feeds that an HTML page at `url` names with `<link rel=alternate>`, without repeats."""
    reader = _LinkReader(url)
    reader.feed(page)
    reader.close()
    return list(reader.links.values())


class _LinkReader(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._base = url
        self.links: dict[str, FeedLink] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "base":
            self._base = http_url(attributes.get("href"), self._base) or self._base
        content_type = attributes.get("type", "").partition(";")[0].strip().lower()
        is_alternate = "alternate" in attributes.get("rel", "").lower().split()
        if tag != "link" or not is_alternate or not _FEED_TYPE.fullmatch(content_type):
            return
        if url := http_url(attributes.get("href"), self._base):
            title = " ".join(attributes.get("title", "").split())
            self.links.setdefault(url, FeedLink(url=url, title=title, content_type=content_type))
