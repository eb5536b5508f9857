"""Checks URLs of feeds: only http(s), no user information, and no address inside the operator's network."""

from __future__ import annotations

from typing import NamedTuple


class InvalidFeedUrl(ValueError):
    """Raised for a URL that cannot be fetched. The message says what the URL must be."""


class FeedAddress(NamedTuple):
    """A checked URL in its normal form, and its parts. `host` is lower-case and in IDNA form."""

    url: str
    scheme: str
    host: str
    port: int


def parse_feed_url(url: str) -> FeedAddress:
    """Returns the normal form of an http(s) URL. Raises InvalidFeedUrl if the URL cannot be fetched."""
    raise NotImplementedError
