"""The simulator in an application: it is labelled everywhere, and answers as configured."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading

import httpx2
import pytest

from tidemill.clock import SystemClock
from tidemill.testing.simulator import Quota, SimulatorCall, embed_text
from tidemill_apps.common import providers
from tidemill_apps.common.model_clients import ProviderAccount, ProviderName
from tidemill_apps.common.providers import run_simulator, use_simulator

QUOTAS = [Quota.rolling("requests", 5)]


def mood(call: SimulatorCall) -> str:
    return f'{{"mood": "{call.texts[-1]}"}}'


@pytest.mark.parametrize("provider", ["gemini", "openai"])
async def test_an_application_without_a_key_runs_on_it(provider: ProviderName) -> None:
    settings = ProviderAccount(provider=provider, dimensions=32)
    async with run_simulator(provider, QUOTAS, replies=mood, clock=SystemClock()) as server:
        account = use_simulator(settings, server.url)
        chat, embeddings = providers.open_chat_model(account), providers.open_embedding_model(account)
        assert (await chat.complete("", "平静", {}, call_id="a")).text == '{"mood": "平静"}'
        assert (await embeddings.embed(["潮汐"], call_id="a")).vectors == [embed_text("潮汐", 32)]
        assert [bill.kind for bill in server.provider.request_log.bills_for_job("a")] == ["chat", "embed"]
        await chat.close()
        await embeddings.close()
    assert not settings.simulator


async def test_it_says_what_it_is_in_the_log_and_at_its_address(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with (
            run_simulator("gemini", QUOTAS, clock=SystemClock()) as server,
            httpx2.AsyncClient() as client,
        ):
            page = (await client.get(server.url)).text
            url = server.url
    assert "This is a simulator of the gemini API" in page
    assert f"{url} is a SIMULATOR of the gemini API" in caplog.text
    assert "nothing is paid for" in caplog.text


async def test_a_slow_reply_does_not_block_the_event_loop() -> None:
    def slow(call: SimulatorCall) -> str:
        here.call_soon_threadsafe(begun.set)
        assert released.wait(timeout=30)
        return "{}"

    here, begun, released = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    async with run_simulator("gemini", QUOTAS, replies=slow, clock=SystemClock()) as server:
        chat = providers.open_chat_model(use_simulator(ProviderAccount(), server.url))
        asking = asyncio.create_task(chat.complete("", "海", {}, call_id="a"))
        await begun.wait()
        released.set()
        assert (await asking).text == "{}"
        await chat.close()


def test_a_process_that_ends_without_closing_it_ends() -> None:
    program = (
        "import asyncio\n"
        "from tidemill.clock import SystemClock\n"
        "from tidemill_apps.common.providers import run_simulator\n"
        "async def main():\n"
        "    kept.append(opened := run_simulator('gemini', [], clock=SystemClock()))\n"
        "    print((await opened.__aenter__()).url)\n"
        "kept = []\n"
        "asyncio.run(main())\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert b"http://127.0.0.1:" in found.stdout


async def test_windows_pass_faster_by_its_scale() -> None:
    async with run_simulator("gemini", QUOTAS, clock=SystemClock(), scale=600) as server:
        chat = providers.open_chat_model(use_simulator(ProviderAccount(), server.url))
        for _ in range(5):
            await chat.complete("", "海", {}, call_id="a")
        last = server.provider.request_log.arrivals[-1].at
        await server.provider.until(last + 61)
        await chat.complete("", "海", {}, call_id="a")
        await chat.close()
    assert server.provider.request_log.refused == []
