"""One line per SDK: current versions of openai, anthropic and google-genai against the simulated provider."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.hooks.metered_app import Metered, metered
from tidemill import Context
from tidemill.testing.simulator import AnthropicDialect, GeminiDialect, OpenAIDialect

HELLO = [{"role": "user", "content": "Hello, how are you today?"}]
SAID = {"x-input-tokens": "30", "x-output-tokens": "12"}


def openai_client(world: Metered, **options: Any) -> Any:
    import openai

    return world.pool.watch(openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key="any", **options))


def anthropic_client(world: Metered, **options: Any) -> Any:
    import anthropic

    return world.pool.watch(anthropic.AsyncAnthropic(base_url=world.url, api_key="any", **options))


def genai_client(world: Metered) -> Any:
    from google import genai

    options: Any = {"base_url": world.url, "headers": SAID}
    return world.pool.watch(genai.Client(api_key="any", http_options=options))


@pytest.mark.parametrize("style", ["parsed", "stream", "told again"])
async def test_openai(style: str) -> None:
    async with metered(OpenAIDialect()) as world, openai_client(world) as client:

        async def call(ctx: Context) -> str:
            chat = {"model": "gpt", "messages": HELLO, "extra_headers": SAID}
            if style == "stream":
                stream = await client.chat.completions.create(
                    **chat, stream=True, stream_options={"include_usage": True}
                )
                pieces = [piece async for piece in stream]
                return "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
            answer = await client.chat.completions.create(**chat)
            if style == "told again":
                ctx.used(answer)
            return str(answer.choices[0].message.content)

        job = await world.run(call)
    assert job.state.value == "done", job.error
    assert world.used == {"requests": 1, "tokens": 42}


@pytest.mark.parametrize("style", ["parsed", "stream", "told again"])
async def test_anthropic(style: str) -> None:
    async with metered(AnthropicDialect()) as world, anthropic_client(world) as client:

        async def call(ctx: Context) -> str:
            chat = {"model": "m", "max_tokens": 99, "messages": HELLO, "extra_headers": SAID}
            if style == "stream":
                async with client.messages.stream(**chat) as stream:
                    return "".join([text async for text in stream.text_stream])
            answer = await client.messages.create(**chat)
            if style == "told again":
                ctx.used(tokens=answer.usage.input_tokens + answer.usage.output_tokens)
            return str(answer.content[0].text)

        job = await world.run(call)
    assert job.state.value == "done", job.error
    assert world.used == {"requests": 1, "tokens": 42}


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")  # by genai
@pytest.mark.parametrize("style", ["async", "stream", "sync", "sync stream"])
async def test_google_genai(style: str) -> None:
    async with metered(GeminiDialect()) as world:
        client = genai_client(world)

        async def call(ctx: Context) -> str:
            chat: Any = {"model": "gemini", "contents": "Hello, how are you today?"}
            if style == "stream":
                stream = await client.aio.models.generate_content_stream(**chat)
                return "".join([piece.text or "" async for piece in stream])
            if style == "sync":
                return str((await asyncio.to_thread(client.models.generate_content, **chat)).text)
            if style == "sync stream":
                return await asyncio.to_thread(
                    lambda: "".join(p.text or "" for p in client.models.generate_content_stream(**chat))
                )
            return str((await client.aio.models.generate_content(**chat)).text)

        job = await world.run(call)
        await client.aio.aclose()
        client.close()
    assert job.state.value == "done", job.error
    assert world.used == {"requests": 1, "tokens": 42}
