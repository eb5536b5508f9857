"""The site of a URL is the key of its rate limit; URLs are masked before they are logged."""

from __future__ import annotations

import pytest

from tidemill_apps.feeds.addresses import InvalidFeedUrl
from tidemill_apps.feeds.sites import mask_url, site_of


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("https://example.com/feed", "example.com"),
        ("https://www.example.com:8443/feed", "example.com"),
        ("http://a.b.example.co.uk/", "example.co.uk"),
        ("http://news.example.com.cn/", "example.com.cn"),
        ("http://EXAMPLE.com./", "example.com"),
        ("https://staff.tumblr.com/rss", "tumblr.com"),
        ("https://engineering.tumblr.com/rss", "tumblr.com"),
        ("https://someone.github.io/atom.xml", "github.io"),
        ("https://someone.blogspot.com/", "blogspot.com"),
        ("http://新闻.例子.中国/", "xn--fsqu00a.xn--fiqs8s"),
        ("http://co.uk/", "co.uk"),
        ("http://feeds.internal/", "feeds.internal"),
        ("http://127.0.0.1/", "127.0.0.1:80"),
        ("http://2130706433:8080/", "127.0.0.1:8080"),
        ("https://[::1]/", "[::1]:443"),
        ("http://localhost:8000/", "localhost:8000"),
        ("http://wiki/", "wiki:80"),
    ],
)
def test_the_site_of_a_url(url: str, site: str) -> None:
    assert site_of(url) == site


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("https://someone.github.io/atom.xml", "someone.github.io"),
        ("https://a.someone.github.io/", "someone.github.io"),
        ("https://github.io/", "github.io"),
        ("https://notgithub.io/", "notgithub.io"),
        ("https://x.eu.example.com/", "x.eu.example.com"),
        ("https://x.us.example.com/", "us.example.com"),
        ("https://staff.tumblr.com/", "tumblr.com"),
    ],
)
def test_hosts_of_independent_sites_are_split_by_setting(url: str, site: str) -> None:
    assert site_of(url, ("GitHub.io", "example.com", ".eu.example.com")) == site


def test_an_invalid_url_has_no_site() -> None:
    with pytest.raises(InvalidFeedUrl):
        site_of("file:///etc/passwd")


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://example.com/feed", "https://example.com/feed"),
        ("https://example.com/f?token=secret&page=2", "https://example.com/f?token=***&page=***"),
        ("https://example.com/f?secret", "https://example.com/f?***"),
        ("https://example.com/f?a=b=secret&&c=", "https://example.com/f?a=***&***&c=***"),
        ("https://user:secret@example.com/#secret", "https://***@example.com/"),
        ("http://[secret/", "***"),
    ],
)
def test_query_values_and_user_information_are_masked(url: str, masked: str) -> None:
    assert mask_url(url) == masked
