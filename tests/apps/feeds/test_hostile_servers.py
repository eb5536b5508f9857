"""Hostile servers: each feed gets a clear error, the event loop is never blocked, other feeds go on.

The loop may be busy for at most 250 ms without a pause."""

from __future__ import annotations

import asyncio
import gzip
import os
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import brotli
import pytest

from tests.apps.feeds.raw_server import (
    LoopLag,
    RawAnswer,
    RawRequest,
    RawServer,
    loopback_fetcher,
    no_wait,
    raw_answer,
)
from tidemill_apps.feeds.documents import FeedDocument, UnreadableFeed
from tidemill_apps.feeds.fetcher import Fetcher, FetchError, FetchRequest
from tidemill_apps.feeds.parser_process import FeedParser, ParserLimits

MAX_LAG_SECONDS = 0.25
TYPE = "application/rss+xml"
GOOD = (
    "<rss version='2.0'><channel><title>新闻</title><item><title>一</title></item></channel></rss>".encode()
)


def streaming(head: bytes, piece: Callable[[int], bytes], pause: float = 0.0) -> RawAnswer:
    """An answer without an end: after the head a piece at a time, with a pause between them."""

    async def answer(_: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        number = 0
        while True:
            writer.write(piece(number))
            await writer.drain()
            await asyncio.sleep(pause)
            number += 1

    return answer


async def silent(_: RawRequest, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def reset(_: RawRequest, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def raw(data: bytes) -> RawAnswer:
    async def answer(_: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return answer


def bomb(compress: Callable[[bytes], bytes], encoding: str) -> RawAnswer:
    return raw_answer("200 OK", compress(bytes(200_000_000)), Content_Encoding=encoding, Content_Type=TYPE)


def entity_bomb(levels: int = 9) -> bytes:
    """The "billion laughs": ten references at each level."""
    entities = ['<!ENTITY l0 "lol">'] + [
        f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, levels + 1)
    ]
    feed = f"<rss version='2.0'><channel><title>&l{levels};</title></channel></rss>"
    return f"<!DOCTYPE rss [{''.join(entities)}]>{feed}".encode()


def quadratic_bomb() -> bytes:
    """One long entity with many references."""
    document = (
        f"<!DOCTYPE rss [<!ENTITY a \"{'a' * 50_000}\">]><rss version='2.0'><channel><title>{'&a;' * 50_000}"
    )
    return f"{document}</title></channel></rss>".encode()


EXTERNAL_ENTITY = (
    b'<?xml version="1.0"?><!DOCTYPE rss [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    b"<rss version='2.0'><channel><title>&x;</title></channel></rss>"
)
OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/rss+xml\r\n"


class HostileServer(NamedTuple):
    """The answer of a server, and the kind and text of the error that its feed gets."""

    answer: Callable[[], RawAnswer]
    kind: str
    text: str


HOSTILE = {
    "silent": HostileServer(lambda: silent, "timeout", "no whole answer within 1 seconds"),
    "slow headers": HostileServer(
        lambda: streaming(b"HTTP/1.1 200 OK\r\n", lambda number: b"X-%d: y\r\n" % number, 0.05),
        "timeout",
        "within 1",
    ),
    "slow body": HostileServer(
        lambda: streaming(OK_HEAD + b"\r\n", lambda _: b"<", 0.05), "timeout", "within 1"
    ),
    "endless headers": HostileServer(
        lambda: streaming(b"HTTP/1.1 200 OK\r\nX: ", lambda _: b"y" * 50_000), "protocol", "is no valid HTTP"
    ),
    "endless body": HostileServer(
        lambda: streaming(OK_HEAD + b"\r\n", lambda _: b"<" * 50_000), "too_large", "more than 2 MB"
    ),
    "endless chunks": HostileServer(
        lambda: streaming(
            OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", lambda _: b"8000\r\n" + b"<" * 0x8000 + b"\r\n"
        ),
        *("too_large", "more than 2 MB"),
    ),
    "huge announced length": HostileServer(
        lambda: streaming(OK_HEAD + b"Content-Length: 999999999999\r\n\r\n", lambda _: b"<" * 50_000),
        *("too_large", "more than 2 MB"),
    ),
    "gzip bomb": HostileServer(lambda: bomb(gzip.compress, "gzip"), "too_large", "more than 2 MB"),
    "gzip bomb of bombs": HostileServer(
        lambda: bomb(lambda data: gzip.compress(data[:20_000_000]) * 20, "gzip"),
        "too_large",
        "more than 2 MB",
    ),
    "deflate bomb": HostileServer(lambda: bomb(zlib.compress, "deflate"), "too_large", "more than 2 MB"),
    "brotli bomb": HostileServer(
        lambda: bomb(lambda data: brotli.compress(data, quality=1), "br"), "too_large", "more than 2 MB"
    ),
    "false gzip": HostileServer(
        lambda: raw_answer("200 OK", GOOD, Content_Encoding="gzip"),
        "protocol",
        "not compressed as its header says",
    ),
    "false brotli": HostileServer(
        lambda: raw_answer("200 OK", GOOD, Content_Encoding="br"),
        "protocol",
        "not compressed as its header says",
    ),
    "unknown compression": HostileServer(
        lambda: raw_answer("200 OK", b"\x28\xb5\x2f\xfd", Content_Encoding="zstd"),
        "protocol",
        "is no valid HTTP",
    ),
    "cut gzip": HostileServer(
        lambda: raw_answer("200 OK", gzip.compress(GOOD)[:-30], Content_Encoding="gzip"),
        "unreadable",
        "cut off",
    ),
    "body shorter than announced": HostileServer(
        lambda: raw_answer("200 OK", GOOD, Content_Length="5000"), "reset", "before its announced end"
    ),
    "body longer than announced": HostileServer(
        lambda: raw_answer("200 OK", GOOD, Content_Length=str(len(GOOD) - 30)), "protocol", "is no valid HTTP"
    ),
    "negative length": HostileServer(
        lambda: raw_answer("200 OK", GOOD, Content_Length="-5"), "protocol", "is no valid HTTP"
    ),
    "two lengths": HostileServer(
        lambda: raw(OK_HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + GOOD),
        "protocol",
        "no valid HTTP",
    ),
    "broken chunks": HostileServer(
        lambda: raw(OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + GOOD), "protocol", "no valid HTTP"
    ),
    "no HTTP": HostileServer(lambda: raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "protocol", "is no valid HTTP"),
    "nothing": HostileServer(lambda: raw(b""), "reset", "closed the connection"),
    "reset": HostileServer(lambda: reset, "reset", "closed the connection"),
    "redirect to itself": HostileServer(
        lambda: raw_answer("302 Found", location="/hostile"), "redirects", "lead back to"
    ),
    "endless redirects": HostileServer(
        lambda: raw_answer("302 Found", location="/hostile/next"), "redirects", "more than 5 redirects"
    ),
    "redirect to loopback": HostileServer(
        lambda: raw_answer("301 Moved", location="http://127.0.0.1:22/"), "blocked", "is not public"
    ),
    "redirect to metadata": HostileServer(
        lambda: raw_answer("307 Moved", location="http://169.254.169.254/latest/"), "blocked", "is not public"
    ),
    "304 without a cache": HostileServer(
        lambda: raw_answer("304 Not Modified"), "protocol", "answers 304 but was sent no validator"
    ),
    "billion laughs": HostileServer(
        lambda: raw_answer("200 OK", entity_bomb(), Content_Type=TYPE), "unreadable", "declares XML entities"
    ),
    "quadratic bomb": HostileServer(
        lambda: raw_answer("200 OK", quadratic_bomb(), Content_Type=TYPE),
        "unreadable",
        "declares XML entities",
    ),
    "external entity": HostileServer(
        lambda: raw_answer("200 OK", EXTERNAL_ENTITY, Content_Type=TYPE),
        "unreadable",
        "declares XML entities",
    ),
    "deep nesting": HostileServer(
        lambda: raw_answer("200 OK", b"<rss version='2.0'>" + b"<a>" * 300_000), "unreadable", "the document"
    ),
    "deep JSON": HostileServer(
        lambda: raw_answer("200 OK", b'{"a":[' + b"[" * 500_000), "unreadable", "malformed"
    ),
    "binary garbage": HostileServer(
        lambda: raw_answer("200 OK", os.urandom(500_000)), "unreadable", "neither RSS, Atom nor JSON Feed"
    ),
    "wrong encoding": HostileServer(
        lambda: raw_answer(
            "200 OK", GOOD.decode().encode("utf-16-le")[:-41], Content_Type=f"{TYPE}; charset=big5"
        ),
        *("unreadable", "the document"),
    ),
    "HTML page": HostileServer(
        lambda: raw_answer("200 OK", b"<!doctype html><p>x"), "unreadable", "is an HTML page"
    ),
}


async def refresh(fetcher: Fetcher, parser: FeedParser, url: str) -> FeedDocument:
    """Fetches and parses as a refresh does."""
    answer = await fetcher.fetch(FetchRequest(url=url), no_wait)
    return await parser.parse(answer.body or b"", answer.content_type, answer.url)


async def refresh_error(fetcher: Fetcher, parser: FeedParser, url: str) -> tuple[str, str]:
    try:
        document = await refresh(fetcher, parser, url)
    except FetchError as error:
        return str(error.kind), error.text
    except UnreadableFeed as error:
        return "unreadable", str(error)
    return "read", document.title


def serve(server: RawServer, path: str, hostile: HostileServer) -> None:
    server.answers[path] = hostile.answer()
    if hostile.text.endswith("5 redirects"):
        server.redirect(path, 302, "/next0")
        for number in range(10):
            server.redirect(f"/next{number}", 302, f"/next{number + 1}")


@pytest.fixture
async def quick_parser() -> AsyncIterator[FeedParser]:
    async with FeedParser(ParserLimits(seconds=5.0)) as parser:
        await parser.parse(GOOD, TYPE, "http://example.com/")  # the child has started
        yield parser


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_server_gets_a_clear_error_and_blocks_nothing(
    server: RawServer, quick_parser: FeedParser, name: str
) -> None:
    hostile = HOSTILE[name]
    serve(server, "/hostile", hostile)
    async with loopback_fetcher(server, seconds=1.0, max_bytes=2_000_000) as fetcher, LoopLag() as lag:
        kind, text = await refresh_error(fetcher, quick_parser, f"{server.url}/hostile")
    assert (kind, hostile.text in text) == (hostile.kind, True), text
    assert lag.cpu_seconds <= MAX_LAG_SECONDS
    assert "passwd" not in text


@pytest.mark.alone
async def test_all_hostile_servers_at_once_delay_neither_the_loop_nor_a_good_feed(server: RawServer) -> None:
    for number, hostile in enumerate(HOSTILE.values()):
        serve(server, f"/{number}", hostile)
    server.answers["/good"] = raw_answer("200 OK", GOOD, Content_Type=TYPE)
    limits = ParserLimits(seconds=5.0, processes=2)
    async with (
        loopback_fetcher(server, seconds=2.0, max_bytes=2_000_000) as fetcher,
        FeedParser(limits) as parser,
    ):
        await parser.parse(GOOD, TYPE, server.url)
        async with LoopLag() as lag:
            attacks = [
                asyncio.create_task(refresh_error(fetcher, parser, f"{server.url}/{number}"))
                for number in range(len(HOSTILE))
            ]
            for _ in range(20):
                assert (await fetcher.fetch(FetchRequest(url=f"{server.url}/good"), no_wait)).body == GOOD
            problems = await asyncio.gather(*attacks)
        assert (await refresh(fetcher, parser, f"{server.url}/good")).title == "新闻"
    assert "read" not in [kind for kind, _ in problems]
    assert lag.wall_seconds <= MAX_LAG_SECONDS


async def test_a_storm_of_server_errors_is_answered_each_time(server: RawServer) -> None:
    statuses = [500, 502, 503, 504, 599]
    for status in statuses:
        server.answers[f"/{status}"] = raw_answer(f"{status} Down", b"x" * 100_000, Retry_After="120")
    async with loopback_fetcher(server) as fetcher, LoopLag() as lag:
        requests = [FetchRequest(url=f"{server.url}/{status}") for status in statuses * 20]
        answers = await asyncio.gather(*(fetcher.fetch(request, no_wait) for request in requests))
    assert [answer.status for answer in answers] == statuses * 20
    assert {(answer.body, answer.retry_after) for answer in answers} == {(None, 120.0)}
    assert lag.cpu_seconds <= MAX_LAG_SECONDS


# --- the parser process


async def test_a_document_that_takes_too_long_is_ended_and_the_next_one_is_read() -> None:
    slow = b"<rss version='2.0'><channel>" + b"<item><title>x</title></item>" * 100_000 + b"</channel></rss>"
    async with FeedParser(ParserLimits(seconds=0.5)) as parser, LoopLag() as lag:
        with pytest.raises(UnreadableFeed, match=r"takes longer than 0\.5 seconds to parse"):
            await parser.parse(slow, TYPE, "http://example.com/")
        assert (await parser.parse(GOOD, TYPE, "http://example.com/")).title == "新闻"
    assert lag.cpu_seconds <= MAX_LAG_SECONDS


async def test_a_document_that_needs_too_much_memory_is_ended_and_the_next_one_is_read() -> None:
    large = b"<rss version='2.0'><channel><title>" + b"x" * 60_000_000 + b"</title></channel></rss>"
    limits = ParserLimits(max_memory_bytes=300 * 1024 * 1024, seconds=30.0)
    async with FeedParser(limits) as parser:
        with pytest.raises(UnreadableFeed, match=r"too much memory|exceed its limits"):
            await parser.parse(large, TYPE, "http://example.com/")
        assert (await parser.parse(GOOD, TYPE, "http://example.com/")).title == "新闻"


async def test_a_child_that_died_is_replaced(parser: FeedParser) -> None:
    await parser.parse(GOOD, TYPE, "http://example.com/")
    child = await parser._idle.get()
    assert child is not None
    await child.stop()
    parser._idle.put_nowait(child)
    assert (await parser.parse(GOOD, TYPE, "http://example.com/")).title == "新闻"


async def test_a_cancelled_document_does_not_answer_for_the_next_one(parser: FeedParser) -> None:
    other = GOOD.replace("新闻".encode(), b"other")
    await parser.parse(GOOD, TYPE, "http://example.com/")
    task = asyncio.create_task(parser.parse(other, TYPE, "http://example.com/"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await parser.parse(GOOD, TYPE, "http://example.com/")).title == "新闻"


async def test_the_child_has_no_secrets_of_the_environment(
    parser: FeedParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "a-canary-secret")
    await parser.parse(GOOD, TYPE, "http://example.com/")
    child = await parser._idle.get()
    parser._idle.put_nowait(child)
    assert child is not None
    environment = Path(f"/proc/{child._process.pid}/environ").read_bytes()
    assert b"a-canary-secret" not in environment


async def test_documents_are_parsed_at_the_same_time_by_two_children() -> None:
    async with FeedParser(ParserLimits(processes=2)) as parser:
        documents = await asyncio.gather(
            *(parser.parse(GOOD, TYPE, "http://example.com/") for _ in range(20))
        )
    assert [document.title for document in documents] == ["新闻"] * 20
