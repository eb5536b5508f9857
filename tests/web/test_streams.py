"""How many streams there may be, how long each goes on, and what is left of it: by either way of reading."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio
from starlette.requests import Request

from tests.web.asgi import ask, shake
from tests.web.signed import token_of
from tests.web.songs import FOLLOW, Songs, at_work, code_of, heard
from tidemill import ConfigurationError
from tidemill.errors import StoreUnavailable
from tidemill.web import Asked, Event, Events, Role, Who, server, streams
from tidemill.web.answering import written
from tidemill.web.serving import Server

OPEN = "/api/songs/radio"


@pytest_asyncio.fixture
async def songs() -> AsyncIterator[Songs]:
    made = Songs()

    @made.app.web.route("GET", OPEN, role=Role.ANYBODY, says="Hear, whoever you are.", answers=Events)
    async def radio(_asked: Asked) -> Events:
        return Events(made.notes())

    async with made.app:
        yield made


async def test_one_viewer_has_so_many_streams_and_others_theirs(
    songs: Songs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "OF_ONE", 2)
    ann, bo = [await token_of(songs.app, Role.OPERATOR, name) for name in ("ann", "bo")]
    async with at_work(songs), songs.open(token=ann) as first, songs.open(token=ann):
        refused = (await songs.refused(token=ann)).response
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
        assert json.loads(refused.body or b"")["message"].startswith("2 streams of yours are open")
        async with songs.open(token=bo), songs.open(OPEN), songs.open(OPEN):
            assert (await songs.refused(OPEN)).response.status_code == 429
        await first.close()
        async with asyncio.timeout(10):
            await songs.gone.wait()
        async with songs.open(token=ann):
            pass


async def test_all_viewers_together_have_so_many(songs: Songs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "OF_ALL", 1)
    ann, bo = [await token_of(songs.app, Role.OPERATOR, name) for name in ("ann", "bo")]
    async with at_work(songs), songs.open(token=ann):
        assert (await songs.refused(token=bo)).response.status_code == 503


async def test_streams_that_nobody_began_to_read_are_not_counted(
    songs: Songs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "OF_ONE", 1)
    token = await token_of(songs.app, Role.OPERATOR)
    headers = {"authorization": f"Bearer {token}"}
    app = Server(songs.app).starlette
    for before in range(3):
        head = await ask(app, "HEAD", FOLLOW, headers=headers)
        assert (head.status, head.streams, songs.ended) == (200, True, before)
        songs.told.put_nowait(None)
        assert (await shake(app, FOLLOW, headers=headers)).status == 101


async def test_who_needs_no_sign_in_may_go_on_reading(songs: Songs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_AGAIN", 1e-6)
    async with at_work(songs), songs.open(OPEN) as radio:
        for number in range(3):
            songs.told.put_nowait(Event("note", str(number)))
            assert (await heard(radio))["data"] == str(number)


@pytest.mark.parametrize(
    ("later", "goes_on"),
    [
        (Who("ann", Role.ADMIN), True),
        (Who("ann", Role.OPERATOR), True),
        (Who("ann", Role.VIEWER), False),
        (Who("bo", Role.ADMIN), False),
        (None, False),
    ],
)
async def test_what_was_begun_for_one_role_is_not_shown_to_a_lesser_one(
    songs: Songs, *, later: Who | None, goes_on: bool
) -> None:
    who: Who | None = Who("ann", Role.OPERATOR)

    async def vouched(_request: Request) -> Who | None:
        return who

    gate = Server(songs.app, vouched).gate
    more: list[object] = []
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "tidemill.headers": more}
    request = Request({**scope, "query_string": b"", "server": ("127.0.0.1", 8750), "scheme": "http"})
    [route] = [each for each in Server(songs.app).routes if each.path == "/api/v1/events"]
    begun = await gate.admit(request, route)
    sent = len(more)
    who = later
    assert await gate.still_admits(request, route, begun) is goes_on
    assert len(more) == sent, "no cookie is sent with a stream that goes on"


async def test_who_comes_while_the_server_stops_is_told_so(songs: Songs) -> None:
    token = await token_of(songs.app, Role.OPERATOR)
    stopping = Server(songs.app)
    stopping.close()
    stream = stopping.streams.follow(songs.notes(), _always, token)
    assert [event async for event in stream] == []
    assert stream.why is streams.Why.CLOSED


@pytest.mark.parametrize(
    ("error", "lines"), [(StoreUnavailable("the store is away"), 1), (ZeroDivisionError("ours"), 3)]
)
async def test_nobody_looks_on_while_it_is_not_known_that_they_may(
    songs: Songs,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    error: Exception,
    lines: int,
) -> None:
    async def unknown() -> bool:
        raise error

    monkeypatch.setattr(streams, "LOOK_AGAIN", 1e-6)
    songs.told.put_nowait(Event("note", "la"))
    stream = streams.Streams(songs.app.clock).follow(songs.notes(), unknown, "ann")
    assert [event async for event in stream] == []
    assert (stream.why, songs.ended) == (streams.Why.FAILED, 1)
    assert f"a stream could not go on: {error}" in caplog.text
    assert min(len(caplog.text.splitlines()), 3) == lines, "a store that is away needs no traceback"


async def test_a_request_hears_what_came_before_a_failure(
    songs: Songs, caplog: pytest.LogCaptureFixture
) -> None:
    for told in (Event("note", "la"), Event("note", "le"), ZeroDivisionError("ours")):
        songs.told.put_nowait(told)
    with caplog.at_level(logging.WARNING):
        async with at_work(songs), httpx2.AsyncClient(base_url=f"http://{songs.url}") as client:
            said = (await client.get(OPEN)).text
    assert said == "event: note\ndata: la\n\nevent: note\ndata: le\n\n"
    assert [record.name for record in caplog.records] == ["tidemill"], "told once"


async def test_who_does_not_read_keeps_no_connection(songs: Songs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lets it go; its stream ends with it. Both ways of reading."""
    monkeypatch.setattr(server, "SLOW", 0.2)
    token = await token_of(songs.app, Role.OPERATOR)
    asked = f"GET {FOLLOW} HTTP/1.1\r\nHost: {{}}\r\nAuthorization: Bearer {token}\r\n\r\n"
    for _ in range(1000):
        songs.told.put_nowait(Event("note", "la" * 8192))
    async with at_work(songs):
        host, _, port = songs.url.partition(":")
        with socket.create_connection((host, int(port))) as idle:
            idle.sendall(asked.format(songs.url).encode())
            async with asyncio.timeout(20):
                await songs.gone.wait()
    assert songs.made < 800, "the source went on as if somebody had read"


async def test_who_is_refused_fills_no_log(songs: Songs, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with at_work(songs):
            assert (await songs.refused()).response.status_code == 401
    assert caplog.records == []


async def test_sign_out_ends_a_stream(songs: Songs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_AGAIN", 0.05)
    await token_of(songs.app, Role.OPERATOR)
    sessions = songs.app.access.sessions
    begun = await sessions.begin((await songs.app.access.tokens.list())[0].id)
    async with at_work(songs):
        cookie = f"tidemill-session-{songs.url.partition(':')[2]}={begun.secret}"
        async with songs.open(Cookie=cookie, Origin=f"http://{songs.url}") as reader:
            songs.told.put_nowait(Event("note", "la"))
            await heard(reader)
            await sessions.end(begun.secret)
            assert await code_of(reader) == 1008


@pytest.mark.parametrize("text", ["潮\u2028汐", "a\x85b\x0bc\x1cd", "a\nb", "a\r\nb\rc\n", ""])
def test_an_event_is_read_as_the_text_that_it_was(text: str) -> None:
    """A line ends by CR, LF or both, and by nothing else that Python takes for an end."""
    said = written(Event("note", text)).encode().replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode()
    data = [line.removeprefix("data: ") for line in said.split("\n") if line.startswith("data: ")]
    assert "\n".join(data) == text.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("ends", ["\n", "\r", "\0"])
def test_a_name_and_an_id_are_one_line(ends: str) -> None:
    for name, id_ in ((f"a{ends}data: b", None), ("a", f"7{ends}event: b")):
        with pytest.raises(ConfigurationError, match="of an Event must be one line"):
            Event(name, "", id=id_)


async def _always() -> bool:
    return True
