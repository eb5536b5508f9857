"""URLs of feeds are checked and brought into one spelling before anything is resolved or fetched."""

from __future__ import annotations

import pytest

from tests.notifications.test_address_policy import ELSEWHERE, INSIDE
from tidemill import AllowedAddresses
from tidemill_apps.feeds.addresses import (
    InvalidFeedUrl,
    PrivateAddress,
    check_address,
    check_literal,
    parse_feed_url,
)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://Example.COM", "https://example.com/"),
        ("  http://example.com/a  ", "http://example.com/a"),
        ("http://example.com:80/a#top", "http://example.com/a"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("https://example.com:8443/x?b=1&a=%20%E4%B8%AD", "https://example.com:8443/x?b=1&a=%20%E4%B8%AD"),
        ("http://example.com./feed", "http://example.com/feed"),
        ("http://例子.中国/订阅?页=1", "http://xn--fsqu00a.xn--fiqs8s/%E8%AE%A2%E9%98%85?%E9%A1%B5=1"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://my_blog.example.com/", "http://my_blog.example.com/"),
        ("http://example.com/a b", "http://example.com/a%20b"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://0177.0.0.1/", "http://127.0.0.1/"),
        ("http://\uff11\uff12\uff17.0.0.1/", "http://127.0.0.1/"),
        ("http://[0:0:0:0:0:0:0:1]:8080/", "http://[::1]:8080/"),
        ("http://[::FFFF:7f00:1]/", "http://[::ffff:127.0.0.1]/"),
    ],
)
def test_a_url_has_one_normal_form(url: str, normal: str) -> None:
    found = parse_feed_url(url)
    if "ffff" in found.host:  # Python versions differ in the spelling of a mapped address
        normal = f"http://[{found.host}]/"
    assert found.url == normal
    assert parse_feed_url(found.url) == found


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "must begin with https:// or http://"),
        ("example.com/feed", "must begin with https:// or http://"),
        ("file:///etc/passwd", "must begin with https:// or http://"),
        ("ftp://example.com/feed", "must begin with https:// or http://"),
        ("javascript:alert(1)", "must begin with https:// or http://"),
        ("//example.com/", "must begin with https:// or http://"),
        ("http:///feed", "name a host"),
        ("http://user@example.com/", "must not have a user name"),
        ("http://user:secret@example.com/", "must not have a user name"),
        ("http://@example.com/", "must not have a user name"),
        ("http://example.com@127.0.0.1/", "must not have a user name"),
        ("http://example.com\\@127.0.0.1/", "no control characters or backslashes"),
        ("http://example.com/\r\nHost: x", "no control characters or backslashes"),
        ("http://example.com\t/", "no control characters or backslashes"),
        ("http://example.com:0/", "a port from 1 to 65535"),
        ("http://example.com:99999/", "must be an address such as"),
        ("http://[::1/", "must be an address such as"),
        ("http://[fe80::1%25eth0]/", "must have an IPv6 address"),
        ("http://1.2.3.4.5/", "must have an IPv4 address"),
        ("http://256.1.1.1/", "must have an IPv4 address"),
        ("http://exa mple.com/", "must name a host"),
        ("http://ex%61mple.com/", "must name a host"),
        ("http://example..com/", "must name a host"),
        ("http://-.example.com/", "must name a host"),
        (f"http://{'a' * 64}.example/", "must name a host"),
        ("http://xn--\u00e4.example/", "must name a host"),
        ("http://example.com/" + "x" * 2000, "at most 2000 characters"),
    ],
)
def test_an_invalid_url_is_refused_with_its_remedy(url: str, problem: str) -> None:
    with pytest.raises(InvalidFeedUrl, match=f"url: .*{problem}"):
        parse_feed_url(url)


@pytest.mark.parametrize("host", [host for host in INSIDE + ELSEWHERE if "localhost" not in host.lower()])
def test_private_literals_are_refused_in_every_spelling(host: str) -> None:
    with pytest.raises(PrivateAddress, match="which is not public; to fetch it, add"):
        check_literal(parse_feed_url(f"http://{host}/"), AllowedAddresses())


@pytest.mark.parametrize(
    ("entry", "url", "allowed"),
    [
        ("127.0.0.0/8", "http://127.9.9.9:81/", True),
        ("10.0.0.0/8", "http://127.0.0.1/", False),
        ("127.0.0.1:8080", "http://127.0.0.1:8080/", True),
        ("127.0.0.1:8080", "http://127.0.0.1:8081/", False),
        ("127.0.0.1:8080", "http://[::ffff:127.0.0.1]:8080/", True),
        ("[::1]:8080", "http://[::1]:8080/", True),
        ("[::1]:8080", "http://[::1]/", False),
        ("::1", "http://[::1]/", True),
    ],
)
def test_listed_addresses_are_allowed(entry: str, url: str, allowed: bool) -> None:
    listed = AllowedAddresses.of([entry], setting="allowed_addresses")
    if allowed:
        check_literal(parse_feed_url(url), listed)
    else:
        with pytest.raises(PrivateAddress):
            check_literal(parse_feed_url(url), listed)


def test_a_listed_name_is_allowed_with_its_port_only() -> None:
    listed = AllowedAddresses.of(["feeds.internal:8080", "wiki.internal"])
    check_address(parse_feed_url("http://feeds.internal:8080/"), "10.0.0.7", listed)
    check_address(parse_feed_url("http://wiki.internal:99/"), "10.0.0.7", listed)
    with pytest.raises(PrivateAddress, match=r"feeds\.internal leads to 10\.0\.0\.7"):
        check_address(parse_feed_url("http://feeds.internal/"), "10.0.0.7", listed)


def test_public_addresses_and_names_pass() -> None:
    for url in (
        "http://93.184.216.34/",
        "http://[2606:2800:220:1:248:1893:25c8:1946]/",
        "http://example.com/",
    ):
        check_literal(parse_feed_url(url), AllowedAddresses())
