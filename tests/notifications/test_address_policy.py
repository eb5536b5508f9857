"""Webhooks cannot call internal addresses, in any spelling (S16)."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from tests.notifications.receiver import ForbiddenListener, Receiver
from tidemill.errors import ConfigurationError
from tidemill.notifications.address_policy import (
    AddressNotAllowed,
    AllowedAddresses,
    is_public,
    parse_url,
    resolve_addresses,
)
from tidemill.notifications.http_client import post

INSIDE = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "0",
    "0.0.0.0",  # noqa: S104 - an address that must be refused
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0x7f000001",
    "0x7f.1",
    "127.255.255.254",
    "localhost",
    "LOCALHOST",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
]
ELSEWHERE = [
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "2852039166",
    "100.100.100.200",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "198.18.0.1",
    "[ff02::1]",
    "[::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[fec0::1]",
    "192.0.0.192",
    "168.63.129.16",
]


def _post(url: str, allowed: AllowedAddresses | None = None) -> int:
    return post(url, b"{}", {}, timeout=2.0, allowed=allowed or AllowedAddresses()).status


@pytest.mark.parametrize("host", INSIDE)
def test_addresses_of_this_machine_are_refused(canary: ForbiddenListener, host: str) -> None:
    with pytest.raises((AddressNotAllowed, OSError)) as caught:
        _post(f"http://{host}:{canary.port}/")
    assert not isinstance(caught.value, ConnectionError | TimeoutError)
    assert canary.called == 0


@pytest.mark.parametrize("host", ELSEWHERE)
def test_non_public_addresses_are_refused(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("somebody was called"))
    with pytest.raises(AddressNotAllowed, match=r"is not public; .* webhooks\.allow"):
        _post(f"http://{host}/")


@pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.0/8", "localhost"])
def test_an_allowed_address_is_called(receiver: Receiver, entry: str) -> None:
    host = "localhost" if entry == "localhost" else "127.0.0.1"
    assert _post(f"http://{host}:{receiver.port}/", AllowedAddresses.of([entry])) == 204
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_entry_with_a_port_allows_that_port_only(
    receiver: Receiver, canary: ForbiddenListener, host: str
) -> None:
    allowed = AllowedAddresses.of([f"{host}:{receiver.port}"])
    assert _post(f"http://{host}:{receiver.port}/", allowed) == 204
    with pytest.raises(AddressNotAllowed):
        _post(f"http://{host}:{canary.port}/", allowed)
    assert canary.called == 0


def test_an_ipv4_address_in_ipv6_form_counts_as_the_ipv4_address() -> None:
    """Applications pass addresses as their resolver returns them."""
    mapped = ipaddress.ip_address("::ffff:127.0.0.1")
    assert not AllowedAddresses().allows("host", 80, mapped)
    assert AllowedAddresses.of(["127.0.0.1:80"]).allows("host", 80, mapped)


def test_a_name_that_means_something_else_a_moment_later_is_called_where_it_was_checked(
    monkeypatch: pytest.MonkeyPatch, canary: ForbiddenListener
) -> None:
    """DNS rebinding: the name is public when it is checked and internal when it is called."""
    looked_up: list[str] = []
    connected: list[Any] = []

    def resolves(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        looked_up.append(host)
        address = "93.184.216.34" if len(looked_up) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def connects(_: socket.socket, address: Any) -> None:
        connected.append(address)
        raise TimeoutError("not in a test")

    monkeypatch.setattr(socket, "getaddrinfo", resolves)
    monkeypatch.setattr(socket.socket, "connect", connects)
    with pytest.raises(TimeoutError):
        _post(f"http://rebinds.example:{canary.port}/")
    assert looked_up == ["rebinds.example"]
    assert connected == [("93.184.216.34", canary.port)]


def test_one_address_inside_is_enough_to_call_none(
    monkeypatch: pytest.MonkeyPatch, canary: ForbiddenListener
) -> None:
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, canary.port))
        for address in ("93.184.216.34", "127.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(AddressNotAllowed, match=r"leads to 127\.0\.0\.1"):
        _post("http://both.example/")
    assert canary.called == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(receiver: Receiver, canary: ForbiddenListener, status: int) -> None:
    receiver.status, receiver.headers = status, {"Location": f"http://127.0.0.1:{canary.port}/"}
    assert _post(f"{receiver.url}/", AllowedAddresses.of(["127.0.0.1"])) == status
    assert canary.called == 0


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("file:///etc/passwd", "must begin with https:// or http://"),
        ("gopher://host/", "must begin with https:// or http://"),
        ("//host/", "must begin with https:// or http://"),
        ("https://", "name a host"),
        ("http:///path", "name a host"),
        ("http://user:pass@host/", "must not hold a user name or password"),
        ("http://good.example@127.0.0.1/", "must not hold a user name or password"),
        ("http://host/a b", "without spaces"),
        ("http://host/\r\nX: 1", "plain ASCII"),
        ("http://good.example\\@evil.example/", "backslashes"),
        ("http://hóst/", "plain ASCII"),
        ("http://host:99999/", "is no address"),
        ("http://host:0/", "a port above 0"),
        ("http://[::1/", "is no address"),
        ("http://host/#x", "no fragment"),
        (f"http://{'x' * 64}.example/", "is no address"),
        ("http://host..example/", "is no address"),
        ("http://host/" + "x" * 2000, "at most 2000 characters"),
    ],
)
def test_an_invalid_url_is_refused_with_its_problem(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parse_url(url)


def test_an_address_that_stands_for_another_is_taken_for_that() -> None:
    target = parse_url("http://[::ffff:127.0.0.1]:80/")
    [place] = resolve_addresses(target, AllowedAddresses.of(["127.0.0.1"]))
    assert place.address[0] == "::ffff:127.0.0.1"
    with pytest.raises(AddressNotAllowed, match=r"leads to 127\.0\.0\.1"):
        resolve_addresses(target, AllowedAddresses())


def test_public_addresses_are_public() -> None:
    for address in ("93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946"):
        assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("entry", ["", "10.0.0.1/8", "http://host", "host/path"])
def test_an_invalid_entry_of_webhooks_allow_is_refused(entry: str) -> None:
    with pytest.raises(ConfigurationError, match=r"webhooks\.allow"):
        AllowedAddresses.of([entry])
