"""Reads feed documents: RSS, Atom, RDF and JSON Feed.

The documents are untrusted. `FeedParser` calls these functions in a process of its own, which has limits of
time and memory."""

from __future__ import annotations

import calendar
import hashlib
import html
import io
import re
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from tidemill_apps.feeds.charsets import decode_document
from tidemill_apps.feeds.html_content import html_to_text, http_url, sanitise

_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_FILLER = r"(?>\s+|<\?.*?\?>|<!--.*?-->)*+"  # atomic: other ways to split the filler are not tried
_DOCTYPE = re.compile(rf"(?is){_FILLER}<!DOCTYPE[^\[>]*\[(.*?)\]\s*>")
_HARMLESS_ENTITY = re.compile(
    r"<!ENTITY\s+(?:\w+\s+(?:\"(?:&#\w+;|[^&%\"]){0,64}\"|'(?:&#\w+;|[^&%']){0,64}')\s*|%\s[^>]*)>"
)
_ROOT_END = re.compile(rf"(?is)</(?:\w+:)?(?:rss|feed|rdf|channel)\s*>{_FILLER}$")
_HTML_PAGE = re.compile(r"<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE)
_JSON_FEED_VERSION = "https://jsonfeed.org/version/"
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_SHORT_TEXT_CHARACTERS = 100
_TITLE_CHARACTERS = 100
_MAX_GUID_CHARACTERS = 1000
_YEARS = range(1900, 2200)


class FeedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a feed document.

    - `url`: an absolute http(s) URL, or None.
    - `title`: plain text; the first words of the content if the entry has no title.
    - `content`: sanitised HTML.
    - `text`: the content as plain text.
    - `published`: seconds since 1970, or None.
    - `digest`: a hash of title and content, and of the date if the text is short."""

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


class UnreadableFeed(Exception):
    """Raised if a document is no feed that can be read. The message is a sentence for people."""


def parse_document(body: bytes, content_type: str | None, url: str) -> FeedDocument:
    """Returns the feed in a document that was fetched from `url`. Raises UnreadableFeed if it has none."""
    text = decode_document(body, content_type).strip().removeprefix("\ufeff")
    if not text:
        raise UnreadableFeed("the document is empty")
    return _read_json(text, url) if text.startswith("{") else _read_xml(text, url)


def _read_xml(text: str, url: str) -> FeedDocument:
    _check_entities(text)
    result = _parse_with_feedparser(text, url)
    entries, feed = result["entries"], result["feed"]
    if not result["version"] and not entries:
        page = "an HTML page" if _HTML_PAGE.search(text[:2000]) else "neither RSS, Atom nor JSON Feed"
        raise UnreadableFeed(f"the document is {page}; look for the address of the feed on the site")
    if result["bozo"] and not _ROOT_END.search(text[-10_000:]):
        raise UnreadableFeed("the document is cut off; its last end tag is missing")
    return FeedDocument(
        title=_plain(feed, "title"),
        link=http_url(feed.get("link"), url),
        ttl_seconds=_ttl_seconds(feed.get("ttl")),
        entries=tuple(_read_entry(item, url) for item in entries),
    )


def _check_entities(text: str) -> None:
    """Refuses entities that refer to others, to files or to other hosts: they are XML bombs and worse."""
    doctype = _DOCTYPE.match(_DECLARATION.sub("", text[:100_000]))
    if doctype and "<!ENTITY" in _HARMLESS_ENTITY.sub("", doctype[1]).upper():
        raise UnreadableFeed("the document declares XML entities that are nested, long or external")


def _parse_with_feedparser(text: str, url: str) -> Any:
    import feedparser

    file = io.BytesIO(_DECLARATION.sub("", text).encode("utf-8", "replace"))
    headers = {"content-type": "application/xml; charset=utf-8", "content-location": url}
    return feedparser.parse(file, response_headers=headers, sanitize_html=False, resolve_relative_uris=False)


def _read_entry(item: Mapping[str, Any], url: str) -> FeedEntry:
    """Returns an entry from an item as feedparser has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # `updated` may mean `published`, which is wanted
        moment = item.get("published_parsed") or item.get("updated_parsed") or item.get("created_parsed")
    content, base = _best_content(item, url)
    title, content = _plain(item, "title"), sanitise(content, base)
    text = html_to_text(content)
    links = [item.get("link"), *(enclosure.get("href") for enclosure in item.get("enclosures", ()))]
    found = next((link for link in (http_url(link, base) for link in links) if link), None)
    guid = str(item.get("id") or "").strip()
    if len(guid) > _MAX_GUID_CHARACTERS:
        guid = _hash(guid)
    published = float(calendar.timegm(moment)) if moment and moment.tm_year in _YEARS else None
    # A short text, such as "Daily links", may be that of several entries; their dates tell them apart.
    dated = len(text) < _SHORT_TEXT_CHARACTERS and (guid or found)
    return FeedEntry(
        guid=guid or None,
        url=found,
        title=title or _beginning(text),
        content=content,
        text=text,
        published=published,
        digest=_hash(title, content, str(published) if dated else ""),
    )


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def _best_content(item: Mapping[str, Any], url: str) -> tuple[str, str]:
    """Returns the longest content as HTML, and the URL that its relative links refer to."""
    details = [*item.get("content", ()), item.get("summary_detail") or {}]
    best = max(details, key=lambda detail: len(detail.get("value") or ""))
    value, is_html = best.get("value") or "", best.get("type") in _HTML_TYPES
    content = value if is_html else html.escape(value, quote=False).replace("\n", "<br>")
    return content, http_url(best.get("base"), url) or url


def _plain(item: Mapping[str, Any], name: str) -> str:
    value = str(item.get(name) or "")
    is_html = (item.get(f"{name}_detail") or {}).get("type") in _HTML_TYPES
    return " ".join((html_to_text(value) if is_html else value).split())


def _ttl_seconds(minutes: object) -> float | None:
    text = str(minutes or "").strip()
    return 60.0 * int(text) if re.fullmatch(r"\d{1,7}", text) and int(text) else None


def _read_json(text: str, url: str) -> FeedDocument:
    """Reads a JSON Feed. Items that are no objects are left out, as its specification asks for tolerance."""
    try:
        feed = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableFeed(f"the document begins as JSON and is malformed; {error}") from None
    items = feed.get("items")
    if not str(feed.get("version", "")).startswith(_JSON_FEED_VERSION) or not isinstance(items, list):
        raise UnreadableFeed("the document is JSON but no JSON Feed; `version` or `items` is missing")
    return FeedDocument(
        title=_plain(feed, "title"),
        link=http_url(feed.get("home_page_url"), url),
        ttl_seconds=None,
        entries=tuple(_read_json_item(item, url) for item in items if isinstance(item, dict)),
    )


def _read_json_item(item: Mapping[str, Any], url: str) -> FeedEntry:
    contents = [("content_html", "text/html"), ("content_text", "text/plain"), ("summary", "text/plain")]
    given = [{"value": item[key], "type": kind} for key, kind in contents if isinstance(item.get(key), str)]
    fields = {
        "id": None if item.get("id") is None else str(item["id"]),
        "link": item.get("url") or item.get("external_url"),
        "title": item.get("title"),
        "content": given[:1],
        "published_parsed": _json_date(item.get("date_published")) or _json_date(item.get("date_modified")),
    }
    return _read_entry(fields, http_url(item.get("url"), url) or url)


def _json_date(value: object) -> time.struct_time | None:
    try:
        moment = datetime.fromisoformat(str(value).strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).utctimetuple()
    except (ValueError, OverflowError):
        return None


def _beginning(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _TITLE_CHARACTERS else f"{line[: _TITLE_CHARACTERS - 1].rstrip()}…"
