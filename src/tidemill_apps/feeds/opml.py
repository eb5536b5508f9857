"""Reads and writes OPML, the file format for lists of feeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tidemill_apps.feeds.feed_store import Feed

MAX_OPML_BYTES = 2_000_000
MAX_OUTLINES = 5000
REMEDY = "export the list of feeds as OPML from the other program"


class InvalidOpml(ValueError):
    """Raised if a document is no OPML that can be imported. The message includes a remedy."""


class OpmlOutline(NamedTuple):
    """A feed in an OPML document. Its URL is not checked."""

    url: str
    title: str


def parse_opml(document: str) -> list[OpmlOutline]:
    """Returns the feeds of an OPML document, in its order and without repeats."""
    size = len(document.encode())
    if size > MAX_OPML_BYTES:
        raise InvalidOpml(f"opml: must have at most {MAX_OPML_BYTES} bytes, has {size}; split the file")
    if "<!DOCTYPE" in document or "<!ENTITY" in document:
        raise InvalidOpml("opml: must not have a DOCTYPE or entities; remove them")
    try:
        root = ET.fromstring(document.encode())  # noqa: S314 - without a DOCTYPE there are no entities
    except (ET.ParseError, ValueError) as error:
        raise InvalidOpml(f"opml: must be XML, is not ({error}); {REMEDY}") from None
    if root.tag.lower() != "opml":
        raise InvalidOpml(f"opml: must be an <opml> document, is <{root.tag[:50]}>; {REMEDY}")
    found: dict[str, OpmlOutline] = {}
    for outline in root.iter("outline"):
        url = (outline.get("xmlUrl") or outline.get("xmlurl") or "").strip()
        if url:
            found.setdefault(url, OpmlOutline(url, outline.get("title") or outline.get("text") or ""))
    if not found:
        raise InvalidOpml(f"opml: must have outlines with an xmlUrl, has none; {REMEDY}")
    if len(found) > MAX_OUTLINES:
        raise InvalidOpml(f"opml: must have at most {MAX_OUTLINES} feeds, has {len(found)}; split the file")
    return list(found.values())


def format_opml(feeds: Iterable[Feed]) -> str:
    """Returns an OPML document of the feeds."""
    root = ET.Element("opml", version="2.0")
    ET.SubElement(ET.SubElement(root, "head"), "title").text = "Feeds"
    body = ET.SubElement(root, "body")
    for feed in feeds:
        title = feed.title or feed.url
        ET.SubElement(body, "outline", type="rss", text=title, title=title, xmlUrl=feed.url)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
