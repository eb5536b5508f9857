"""Hooks in httpx, httpx2, aiohttp and requests, sync and async, for every way to read a body."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests

from tests.hooks.metered_app import Metered, metered
from tidemill import ConfigurationError, Context
from tidemill.testing.simulator import OpenAIDialect

SAID = {"x-input-tokens": "30", "x-output-tokens": "12"}
CHAT: Any = {"model": "gpt", "messages": [{"role": "user", "content": "Hello"}]}
STREAM: Any = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
HTTPX: list[Any] = [httpx, httpx2]
PATH = "/v1/chat/completions"


async def used_by(world: Metered, handler: Any) -> dict[str, float]:
    job = await world.run(handler)
    assert job.state.value == "done", job.error
    return world.used


@pytest.mark.parametrize("style", ["whole", "streamed", "given up", "raw"])
@pytest.mark.parametrize("library", HTTPX, ids=["httpx", "httpx2"])
async def test_httpx(library: Any, style: str) -> None:
    async with (
        metered(OpenAIDialect()) as world,
        world.pool.watch(library.AsyncClient(base_url=world.url, headers=SAID)) as client,
    ):

        async def call(ctx: Context) -> None:
            if style == "whole":
                response = await client.post(PATH, json=CHAT)
                assert response.json()["usage"]["total_tokens"] == 42
                assert [line async for line in response.aiter_lines()], "once more, from what it has kept"
                return
            async with client.stream("POST", PATH, json=STREAM) as response:
                if style == "streamed":
                    assert [line async for line in response.aiter_lines()][-2] == "data: [DONE]"
                elif style == "raw":
                    assert [piece async for piece in response.aiter_raw()]

        # An unread body, or one read as raw bytes, gives no usage.
        expected = 42 if style in {"whole", "streamed"} else 1_000
        assert await used_by(world, call) == {"requests": 1, "tokens": expected}


@pytest.mark.parametrize("library", HTTPX, ids=["httpx", "httpx2"])
async def test_httpx_in_a_thread(library: Any) -> None:
    async with metered(OpenAIDialect()) as world:
        with world.pool.watch(library.Client(base_url=world.url, headers=SAID)) as client:

            def call(ctx: Context) -> None:
                assert client.post(PATH, json=CHAT).json()["usage"]["total_tokens"] == 42
                with client.stream("POST", PATH, json=STREAM) as response:
                    assert list(response.iter_lines())[-2] == "data: [DONE]"

            assert await used_by(world, call) == {"requests": 2, "tokens": 84}


@pytest.mark.parametrize("style", ["json", "lines", "chunks", "any", "iter_chunks"])
async def test_aiohttp(style: str) -> None:
    async with (
        metered(OpenAIDialect()) as world,
        world.pool.watch(aiohttp.ClientSession(world.url, headers=SAID)) as session,
    ):

        async def call(ctx: Context) -> None:
            async with session.post(PATH, json=CHAT if style == "json" else STREAM) as response:
                if style == "json":
                    assert (await response.json())["usage"]["total_tokens"] == 42
                    ctx.used(response)
                elif style == "lines":
                    assert [line async for line in response.content][-2] == b"data: [DONE]\n"
                elif style == "chunks":
                    pieces = [piece async for piece in response.content.iter_chunked(7)]
                    assert b"".join(pieces).endswith(b"data: [DONE]\n\n")
                elif style == "any":
                    assert [piece async for piece in response.content.iter_any()]
                else:
                    assert [piece async for piece, _ in response.content.iter_chunks()]

        assert await used_by(world, call) == {"requests": 1, "tokens": 42}


async def test_requests() -> None:
    async with metered(OpenAIDialect()) as world:
        with world.pool.watch(requests.Session()) as session:
            session.headers.update(SAID)

            def call(ctx: Context) -> None:
                url = world.url + PATH
                answer = session.post(url, json=CHAT, timeout=5)
                assert list(answer.iter_lines())
                assert answer.json()["usage"]["total_tokens"] == 42
                ctx.used(answer)
                with session.post(url, json=STREAM, timeout=5, stream=True) as response:
                    assert list(response.iter_lines())[-2] == b"data: [DONE]"

            assert await used_by(world, call) == {"requests": 2, "tokens": 84}


async def test_outside_of_a_handler_a_watched_client_is_a_plain_one() -> None:
    async with (
        metered(OpenAIDialect()) as world,
        world.pool.watch(httpx2.AsyncClient(base_url=world.url, headers=SAID)) as client,
    ):
        response = await client.post(PATH, json=CHAT)
        assert response.json()["usage"]["total_tokens"] == 42

        async def call(ctx: Context) -> None: ...

        assert await used_by(world, call) == {"requests": 1, "tokens": 1_000}


async def test_a_program_s_own_hooks_and_trace_go_on() -> None:
    seen: list[str] = []

    async def own_hook(response: Any) -> None:
        await response.aread()
        seen.append("response")

    async def own_trace(event: str, _info: Any) -> None:
        seen.append(event)

    async with metered(OpenAIDialect()) as world:
        client = httpx2.AsyncClient(base_url=world.url, headers=SAID, event_hooks={"response": [own_hook]})
        async with world.pool.watch(client):
            assert world.pool.watch(client) is client
            assert [len(hooks) for hooks in client.event_hooks.values()] == [1, 2], "watched once"

            async def call(ctx: Context) -> None:
                await client.post(PATH, json=CHAT, extensions={"trace": own_trace})

            assert await used_by(world, call) == {"requests": 1, "tokens": 42}
    assert "response" in seen
    assert "http11.send_request_headers.started" in seen


async def test_calls_at_once_in_one_attempt() -> None:
    async with (
        metered(OpenAIDialect()) as world,
        world.pool.watch(httpx2.AsyncClient(base_url=world.url, headers=SAID)) as client,
    ):

        async def one(ctx: Context) -> None:
            async with ctx.spend(world.pool, tokens=1_000):
                response = await client.post(PATH, json=CHAT)
                await asyncio.sleep(0)
                ctx.used(response)

        async def call(ctx: Context) -> None:
            await client.post(PATH, json=CHAT)
            await asyncio.gather(*(one(ctx) for _ in range(4)))

        assert await used_by(world, call) == {"requests": 5, "tokens": 5 * 42}


@pytest.mark.parametrize("thing", [object(), "client", None])
def test_watch_refuses_an_unknown_client(thing: Any) -> None:
    from tidemill import Limit, Tidemill

    pool = Tidemill("memory://").pool("api", Limit.requests(1, per="minute"))
    with pytest.raises(ConfigurationError, match=r"watch: .* is no client that can be watched; give one of"):
        pool.watch(thing)


def clients() -> dict[str, Any]:
    import openai
    from google import genai

    return {
        "httpx": httpx.AsyncClient(),
        "sync httpx2": httpx2.Client(),
        "aiohttp": aiohttp.ClientSession(),
        "requests": requests.Session(),
        "openai": openai.OpenAI(api_key="any"),
        "google-genai": genai.Client(api_key="any"),
    }


async def test_a_client_reports_to_one_pool() -> None:
    from tidemill import Limit, Tidemill

    app = Tidemill("memory://")
    small, big = (app.pool(name, Limit.requests(1, per="minute")) for name in ("small", "big"))
    sentence = r"watch: this client reports to pool 'big' already; make one client for each pool"
    made = clients()
    for client in made.values():
        big.watch(big.watch(client))
        with pytest.raises(ConfigurationError, match=sentence):
            small.watch(client)
    await made["httpx"].aclose()
    await made["aiohttp"].close()


DAILY = b'{"error": {"message": "You have reached your daily quota of requests."}}'


@pytest.mark.parametrize("style", ["read", "content", "unread"])
async def test_aiohttp_the_text_of_an_error_is_read(style: str) -> None:
    """Also if the handler discards the body. The handler reads the same body as without the hook."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 429 No\r\ncontent-type: application/json\r\ncontent-length: {len(DAILY)}\r\n\r\n"
        writer.write(head.encode() + DAILY)
        await writer.drain()
        writer.close()

    async with (
        metered(OpenAIDialect()) as world,
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        world.pool.watch(aiohttp.ClientSession()) as session,
    ):
        port = server.sockets[0].getsockname()[1]
        bodies: list[bytes] = []

        async def call(ctx: Context) -> None:
            async with session.get(f"http://127.0.0.1:{port}") as response:
                if style == "read":
                    bodies.append(await response.read())
                elif style == "content":
                    bodies.append(b"".join([piece async for piece in response.content.iter_any()]))

        await world.run(call)
    assert bodies == ([] if style == "unread" else [DAILY])
    assert [closure.reason.value for closure in world.view.closures] == ["day quota"]
