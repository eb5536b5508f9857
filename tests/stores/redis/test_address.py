"""Parsing of Redis URLs, and the errors for wrong ones."""

from __future__ import annotations

import pytest

from tidemill.errors import ConfigurationError
from tidemill.stores.redis.address import RedisLogin, RedisNode, parse_url
from tidemill.tls import TlsFiles


def test_one_server() -> None:
    address = parse_url("redis://ann:s%40crt@example.org:7000/3?prefix=shop&timeout=2.5")
    assert address.nodes == (RedisNode("example.org", 7000),)
    assert (address.login, address.db, address.timeout) == (RedisLogin("ann", "s@crt"), 3, 2.5)
    assert address.root == "{shop}:"
    assert address.tls is None


def test_default_values_are_left_out_of_the_text() -> None:
    address = parse_url("redis://localhost")
    assert address.nodes == (RedisNode("localhost", 6379),)
    assert (address.db, address.root, address.timeout) == (0, "{tidemill}:", 5.0)


def test_ipv6() -> None:
    assert parse_url("redis://[::1]:7000").nodes == (RedisNode("::1", 7000),)
    assert str(parse_url("redis://[::1]:7000")) == "redis://[::1]:7000"


def test_a_password_without_a_user() -> None:
    assert parse_url("redis://:secret@h").login == RedisLogin("", "secret")


def test_tls_is_verified_unless_the_url_says_no() -> None:
    assert parse_url("rediss://h").tls == TlsFiles()
    with pytest.raises(ConfigurationError, match=r"a Unix socket has no TLS; write redis\+unix://"):
        parse_url("rediss+unix:///run/redis.sock")
    assert parse_url("rediss://h?ca=/a.pem&cert=/c.pem&key=/k.pem&verify=no").tls == TlsFiles(
        "/a.pem", "/c.pem", "/k.pem", verify=False
    )


def test_sentinels() -> None:
    address = parse_url("redis+sentinel://:pw@a,b:26380/main/2?sentinel_password=other")
    assert address.nodes == (RedisNode("a", 26379), RedisNode("b", 26380))
    assert (address.discovery, address.service, address.db) == ("sentinel", "main", 2)
    assert (address.login, address.sentinel_login) == (RedisLogin("", "pw"), RedisLogin("", "other"))
    assert parse_url("rediss+sentinel://a/main").tls == TlsFiles()


def test_cluster() -> None:
    address = parse_url("redis+cluster://a:7000,b:7001?prefix=shop")
    assert (address.discovery, address.nodes) == ("cluster", (RedisNode("a", 7000), RedisNode("b", 7001)))


def test_a_socket() -> None:
    address = parse_url("redis+unix:///run/redis.sock?db=2")
    assert (address.nodes, address.db) == ((RedisNode(path="/run/redis.sock"),), 2)
    assert str(address) == "redis+unix:///run/redis.sock/2"


@pytest.mark.parametrize(
    "url",
    [
        "redis://ann:hunter2@h:7000/1",
        "redis+sentinel://ann:hunter2@h/main?sentinel_password=hunter2",
        "rediss+cluster://:hunter2@h",
    ],
)
def test_no_secret_is_shown(url: str) -> None:
    address = parse_url(url)
    assert "hunter2" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://", "names no host"),
        ("redis://a,b", "several hosts"),
        ("redis://a:nine", "port"),
        ("redis://a:99999", "port"),
        ("redis://a/one", "database must be a number"),
        ("redis://a/1/2", "database must be a number"),
        ("redis+cluster://a/1", "only database 0"),
        ("redis+sentinel://a", "names no service"),
        ("redis://a?colour=red", "unknown option 'colour'; known are prefix,"),
        ("redis://a?ca=/a.pem", "for TLS; write rediss://"),
        ("rediss://a?verify=maybe", "yes or no"),
        ("rediss://a?key=/k.pem", "without cert"),
        ("redis://a?prefix=a%20b", "prefix must be"),
        ("redis://a?prefix={a}", "prefix must be"),
        ("redis://a?timeout=soon", "timeout must be seconds"),
        ("redis://a?timeout=0", "timeout must be seconds"),
        ("redis://a?eviction=yes", "eviction must be allowed"),
        ("redis+carrier-pigeon://a", "not a redis URL"),
        ("redis://u:s3cret/word@h:6379/0", "as %40, %2F"),
        ("redis://u:s3cret#word@h", "as %40, %2F"),
        ("redis://u:p?s3cret@h", "as %40, %2F"),
        ("rediss://u:s3cret[word@h", "as %40, %2F"),
        ("redis+unix://u:p?s3cret@/run/redis.sock", "as %40, %2F"),
    ],
)
def test_invalid_urls_are_refused_with_a_remedy(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^url \(") as refused:
        parse_url(url)
    assert says in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_an_at_sign_in_a_password_is_no_harm() -> None:
    address = parse_url("redis://ann:p@ss@h:7000")
    assert (address.login, address.nodes) == (RedisLogin("ann", "p@ss"), (RedisNode("h", 7000),))
