"""The fetcher over real connections: validators, redirects, limits, and addresses that stay checked (S11)."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import brotli
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.apps.feeds.raw_server import (
    USER_AGENT,
    CanaryListener,
    RawRequest,
    RawServer,
    loopback_fetcher,
    no_wait,
    raw_answer,
)
from tests.notifications.test_address_policy import ELSEWHERE, INSIDE
from tests.servers.certificates import Certificate
from tidemill import ConfigurationError
from tidemill_apps.feeds.fetcher import (
    FetchAnswer,
    Fetcher,
    FetchError,
    FetchErrorKind,
    FetchLimits,
    FetchRequest,
)


class ScriptedResolver(AbstractResolver):
    """A resolver whose answers are given, one for each lookup; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.names: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.names.append(host)
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not addresses:
            raise OSError("no such name")
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": socket.IPPROTO_TCP,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in addresses
        ]

    async def close(self) -> None:
        pass


async def fetch(fetcher: Fetcher, url: str, **validators: str) -> FetchAnswer:
    return await fetcher.fetch(FetchRequest(url=url, **validators), no_wait)


async def failure(fetcher: Fetcher, url: str, **validators: str) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await fetch(fetcher, url, **validators)
    return caught.value


@pytest.mark.parametrize("etag", ['"abc"', 'W/"a b"', "unquoted", '"ünïcode"', '"a,b"', "'single'"])
async def test_validators_are_sent_back_byte_for_byte(server: RawServer, etag: str) -> None:
    raw = etag.encode().decode("latin-1")  # the server's bytes are UTF-8
    modified = "tue, 03 nov 2026 01:02:03 gmt"  # not as the standard writes it, and sent back all the same
    server.answers["/"] = raw_answer("200 OK", b"body", ETag=raw, Last_Modified=modified)
    async with loopback_fetcher(server) as fetcher:
        first = await fetch(fetcher, server.url)
        assert (first.status, first.body, first.etag, first.last_modified) == (200, b"body", etag, modified)
        server.answers["/"] = raw_answer("304 Not Modified", ETag=raw, Cache_Control="max-age=600")
        second = await fetch(fetcher, server.url, etag=etag, last_modified=modified)
    assert (second.status, second.body, second.max_age) == (304, None, 600.0)
    assert server.requests[1].headers["if-none-match"] == raw
    assert server.requests[1].headers["if-modified-since"] == modified
    assert "if-none-match" not in server.requests[0].headers


async def test_an_etag_that_cannot_be_sent_back_is_not_kept(server: RawServer) -> None:
    server.answers["/"] = raw_answer("200 OK", b"body", ETag='"\xff\xfe"')
    async with loopback_fetcher(server) as fetcher:
        assert (await fetch(fetcher, server.url)).etag is None


async def test_the_request_is_honest_and_has_no_cookies(
    server: RawServer, canary: CanaryListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", canary.url)
    server.answers["/b"] = raw_answer("200 OK", b"body", Set_Cookie="a=1")
    server.answers["/a"] = raw_answer("302 Found", location="/b", Set_Cookie="a=1; Path=/")
    async with loopback_fetcher(server) as fetcher:
        await fetch(fetcher, f"{server.url}/a")
        await fetch(fetcher, f"{server.url}/b")
    assert server.paths == ["/a", "/b", "/b"]
    for request in server.requests:
        assert request.headers["user-agent"] == USER_AGENT
        assert request.headers["accept-encoding"] == "gzip, br"
        assert not {"cookie", "authorization", "referer"} & set(request.headers)
    assert canary.called == 0


@pytest.mark.parametrize(
    ("statuses", "permanent"),
    [
        ([301], True),
        ([308], True),
        ([301, 308, 301], True),
        ([302], False),
        ([307], False),
        ([303], False),
        ([301, 302], False),
        ([307, 308], False),
    ],
)
async def test_redirects_are_followed_and_only_permanent_ones_are_reported(
    server: RawServer, statuses: list[int], permanent: bool
) -> None:
    for number, status in enumerate(statuses):
        server.redirect(f"/{number}", status, f"{number + 1}?token=1")
        server.answers[f"/{number}?token=1"] = server.answers[f"/{number}"]
    last = f"/{len(statuses)}?token=1"
    server.answers[last] = raw_answer("200 OK", b"body")
    hops: list[str] = []

    async def before_hop(url: str) -> None:
        assert len(server.requests) == len(hops) + 1, "asked before the hop"
        hops.append(url)

    async with loopback_fetcher(server) as fetcher:
        answer = await fetcher.fetch(FetchRequest(url=f"{server.url}/0"), before_hop)
    assert (answer.url, answer.body) == (server.url + last, b"body")
    assert answer.permanent_url == (answer.url if permanent else None)
    assert hops == [f"{server.url}/{number + 1}?token=1" for number in range(len(statuses))]


@pytest.mark.parametrize(("redirects", "accepted"), [(4, True), (5, True), (6, False)])
async def test_at_most_five_redirects_are_followed(server: RawServer, redirects: int, accepted: bool) -> None:
    for number in range(redirects):
        server.redirect(f"/{number}", 301, f"/{number + 1}")
    server.answers[f"/{redirects}"] = raw_answer("200 OK", b"body")
    async with loopback_fetcher(server) as fetcher:
        if accepted:
            assert (await fetch(fetcher, f"{server.url}/0")).body == b"body"
        else:
            error = await failure(fetcher, f"{server.url}/0")
            assert (error.kind, error.retryable) == (FetchErrorKind.REDIRECTS, False)
            assert error.text == "there are more than 5 redirects"
            assert len(server.requests) == 6


@pytest.fixture
def passing_time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds by which all clocks of the test are put forward."""
    passed = [0.0]
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + passed[0])
    return passed


async def test_the_wait_for_a_hop_does_not_count_against_the_time_limit(
    server: RawServer, passing_time: list[float]
) -> None:
    """A site that allows one request a minute may delay the redirect longer than a fetch may last."""
    server.redirect("/a", 302, "/b")
    server.redirect("/b", 302, "/c")
    server.answers["/c"] = raw_answer("200 OK", b"body")

    async def before_hop(_: str) -> None:
        passing_time[0] += 1000.0

    async with loopback_fetcher(server) as fetcher:
        answer = await fetcher.fetch(FetchRequest(url=f"{server.url}/a"), before_hop)
    assert (answer.body, passing_time) == (b"body", [2000.0])


async def test_the_time_limit_holds_for_all_hops_together(
    server: RawServer, passing_time: list[float]
) -> None:
    async def answer(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        passing_time[0] += 20.0
        await raw_answer("302 Found", location=f"{request.path}x")(request, writer)

    server.answers = {"/": answer, "/x": answer}
    async with loopback_fetcher(server, seconds=30.0) as fetcher:
        error = await failure(fetcher, server.url)
    assert (error.kind, server.paths) == (FetchErrorKind.TIMEOUT, ["/", "/x"])


@pytest.mark.parametrize(
    "status", ["400 Bad", "403 No", "404 No", "410 Gone", "429 Slow", "500 Bad", "503 No"]
)
async def test_error_statuses_are_answers(server: RawServer, status: str) -> None:
    server.answers["/"] = raw_answer(status, b"a page", Retry_After="77", X_RateLimit_Remaining="0")
    async with loopback_fetcher(server) as fetcher:
        answer = await fetch(fetcher, server.url)
    assert (answer.status, answer.body, answer.retry_after) == (int(status[:3]), None, 77.0)
    assert answer.headers["x-ratelimit-remaining"] == "0"


@pytest.mark.parametrize("encoding", ["identity", "gzip", "br"])
@pytest.mark.parametrize("excess", [-1, 0, 1])
async def test_the_size_limit_counts_decompressed_bytes(
    server: RawServer, encoding: str, excess: int
) -> None:
    limit = 200_000
    body = bytes(range(256)) * (limit // 256) + b"x" * (limit % 256 + excess)
    sent = {"identity": body, "gzip": gzip.compress(body), "br": brotli.compress(body)}[encoding]
    server.answers["/"] = raw_answer("200 OK", sent, Content_Encoding=encoding)
    async with loopback_fetcher(server, max_bytes=limit) as fetcher:
        if excess <= 0:
            assert (await fetch(fetcher, server.url)).body == body
        else:
            error = await failure(fetcher, server.url)
            assert (error.kind, error.text) == (FetchErrorKind.TOO_LARGE, "the body has more than 0.2 MB")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("dns", "the host name feeds.example was not found"),
        ("connect", "there is no connection to 127.0.0.1:"),
    ],
)
async def test_a_missing_name_and_a_closed_port_are_different_errors(kind: str, text: str) -> None:
    async with RawServer() as gone:
        port = gone.port
    limits = FetchLimits(user_agent=USER_AGENT, allowed_addresses=("127.0.0.1",))
    url = "http://feeds.example/" if kind == "dns" else f"http://127.0.0.1:{port}/"
    async with Fetcher(limits, resolver=ScriptedResolver([])) as fetcher:
        error = await failure(fetcher, url)
    assert (error.kind, error.retryable) == (kind, True)
    assert text in error.text


async def test_an_untrusted_certificate_is_a_tls_error(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    tls = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=Certificate(tmp_path).context())
    port = tls.sockets[0].getsockname()[1]
    limits = FetchLimits(user_agent=USER_AGENT, allowed_addresses=("127.0.0.1",))
    async with tls, Fetcher(limits) as fetcher:
        error = await failure(fetcher, f"https://127.0.0.1:{port}/")
    assert (error.kind, error.retryable) == (FetchErrorKind.TLS, False)
    assert "certificate verify failed" in error.text


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "http://user:secret@example.com/", "example.com", "http://"]
)
async def test_an_invalid_url_is_refused(url: str) -> None:
    async with Fetcher(FetchLimits(user_agent=USER_AGENT)) as fetcher:
        error = await failure(fetcher, url)
    assert (error.kind, error.retryable) == (FetchErrorKind.INVALID_URL, False)
    assert error.text.startswith("url: must")
    assert "secret" not in error.text


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "http://host", ""])
def test_a_malformed_allowed_address_is_refused_at_the_start(entry: str) -> None:
    with pytest.raises(ConfigurationError, match=r"allowed_addresses: must be hosts, host:port or networks"):
        Fetcher(FetchLimits(user_agent=USER_AGENT, allowed_addresses=(entry,)))


# --- addresses inside the network (SSRF)


@pytest.mark.parametrize("host", INSIDE)
async def test_addresses_of_this_machine_are_not_called(canary: CanaryListener, host: str) -> None:
    async with Fetcher(FetchLimits(user_agent=USER_AGENT)) as fetcher:
        error = await failure(fetcher, f"http://{host}:{canary.port}/")
    assert (error.kind, error.retryable, canary.called) == (FetchErrorKind.BLOCKED, False, 0)


@pytest.mark.parametrize("host", INSIDE + ELSEWHERE)
async def test_redirects_into_the_network_are_not_followed(
    server: RawServer, canary: CanaryListener, host: str
) -> None:
    """The server may be fetched; its redirect leads to another port or host and may not."""
    server.redirect("/", 302, f"http://{host}:{canary.port}/secret")
    hops: list[str] = []

    async def before_hop(url: str) -> None:
        hops.append(url)

    async with loopback_fetcher(server) as fetcher:
        with pytest.raises(FetchError, match="is not public") as caught:
            await fetcher.fetch(FetchRequest(url=server.url), before_hop)
    assert (caught.value.kind, canary.called) == (FetchErrorKind.BLOCKED, 0)
    assert not hops or "localhost" in hops[0].lower(), "a refused address takes no unit of a site"


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("file:///etc/passwd", FetchErrorKind.INVALID_URL),
        ("gopher://127.0.0.1/", FetchErrorKind.INVALID_URL),
        ("http://user:secret@example.com/", FetchErrorKind.INVALID_URL),
        ("http://[::1/", FetchErrorKind.INVALID_URL),
        ("//localhost:1/", FetchErrorKind.BLOCKED),
        ("", FetchErrorKind.PROTOCOL),
    ],
)
async def test_unusable_redirects_are_clear_errors(
    server: RawServer, location: str, kind: FetchErrorKind
) -> None:
    server.redirect("/", 301, location)
    async with loopback_fetcher(server) as fetcher:
        error = await failure(fetcher, server.url)
    assert error.kind == kind
    assert "secret" not in error.text


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "fd00::1", "::1"]
)
async def test_a_name_that_leads_into_the_network_is_refused(canary: CanaryListener, address: str) -> None:
    """One private address is enough, also beside a public one."""
    resolver = ScriptedResolver(["93.184.216.34", address])
    async with Fetcher(FetchLimits(user_agent=USER_AGENT), resolver=resolver) as fetcher:
        error = await failure(fetcher, f"http://inside.example:{canary.port}/")
    assert (error.kind, canary.called) == (FetchErrorKind.BLOCKED, 0)
    assert f"inside.example leads to {address}, which is not public" in error.text


async def test_dns_rebinding_connects_only_to_the_checked_address(
    canary: CanaryListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is public when it is looked up first and private afterwards."""
    resolver = ScriptedResolver(["93.184.216.34"], ["127.0.0.1"])
    connected: list[Any] = []

    async def connect(_: socket.socket, address: Any) -> None:
        connected.append(address)
        raise ConnectionRefusedError("not in a test")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
    url = f"http://rebinds.example:{canary.port}/"
    async with Fetcher(FetchLimits(user_agent=USER_AGENT), resolver=resolver) as fetcher:
        assert (await failure(fetcher, url)).kind == FetchErrorKind.CONNECT
        assert connected == [("93.184.216.34", canary.port)]
        assert resolver.names == ["rebinds.example"], "one lookup for the check and the connection"
        assert (await failure(fetcher, url)).kind == FetchErrorKind.BLOCKED
    assert (len(connected), canary.called) == (1, 0)


async def test_each_hop_is_resolved_and_checked_again(server: RawServer, canary: CanaryListener) -> None:
    """The server redirects to itself after its name was moved into the network."""
    resolver = ScriptedResolver(["127.0.0.1"], ["127.0.0.2"])
    server.redirect("/a", 302, f"http://rebinds.example:{server.port}/b")
    limits = FetchLimits(user_agent=USER_AGENT, allowed_addresses=(f"127.0.0.1:{server.port}",))
    async with Fetcher(limits, resolver=resolver) as fetcher:
        error = await failure(fetcher, f"http://rebinds.example:{server.port}/a")
    assert (error.kind, server.paths) == (FetchErrorKind.BLOCKED, ["/a"])


async def test_an_allowed_name_is_fetched_with_its_own_host_header(server: RawServer) -> None:
    hosts: list[str] = []

    async def answer(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        hosts.append(request.headers["host"])
        await raw_answer("200 OK", b"body")(request, writer)

    server.answers["/"] = answer
    limits = FetchLimits(user_agent=USER_AGENT, allowed_addresses=(f"feeds.internal:{server.port}",))
    async with Fetcher(limits, resolver=ScriptedResolver(["127.0.0.1"])) as fetcher:
        assert (await fetch(fetcher, f"http://feeds.internal:{server.port}/")).body == b"body"
    assert hosts == [f"feeds.internal:{server.port}"]
