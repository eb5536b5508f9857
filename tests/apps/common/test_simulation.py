"""The simulator in an application: it says what it is wherever somebody looks, and answers as it was told."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading

import httpx2
import pytest

from tidemill.clock import SystemClock
from tidemill.testing.providers import Asked, Quota, vector
from tidemill_apps.common.providers import chosen
from tidemill_apps.common.providers.account import Account, Provider
from tidemill_apps.common.simulation import at_simulator, simulated

QUOTAS = [Quota.rolling("requests", 5)]


def mood(asked: Asked) -> str:
    return f'{{"mood": "{asked.texts[-1]}"}}'


@pytest.mark.parametrize("provider", ["gemini", "openai"])
async def test_an_application_without_a_key_runs_on_it(provider: Provider) -> None:
    settings = Account(provider=provider, dimensions=32)
    async with simulated(provider, QUOTAS, replies=mood, clock=SystemClock()) as server:
        account = at_simulator(settings, server.url)
        chat, embeddings = chosen.chat(account), chosen.embeddings(account)
        assert (await chat.complete("", "平静", {}, mark="a")).text == '{"mood": "平静"}'
        assert (await embeddings.embed(["潮汐"], mark="a")).vectors == [vector("潮汐", 32)]
        assert [bill.kind for bill in server.provider.ledger.bills_of("a")] == ["chat", "embed"]
        await chat.close()
        await embeddings.close()
    assert not settings.simulator


async def test_it_says_what_it_is_in_the_log_and_at_its_address(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with simulated("gemini", QUOTAS, clock=SystemClock()) as server, httpx2.AsyncClient() as client:
            page = (await client.get(server.url)).text
            url = server.url
    assert "This is a simulator of the gemini API" in page
    assert f"{url} is a SIMULATOR of the gemini API" in caplog.text
    assert "nothing is paid for" in caplog.text


async def test_it_keeps_nobody_waiting_in_the_application_s_own_loop() -> None:
    def slow(asked: Asked) -> str:
        here.call_soon_threadsafe(begun.set)
        assert released.wait(timeout=30)
        return "{}"

    here, begun, released = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    async with simulated("gemini", QUOTAS, replies=slow, clock=SystemClock()) as server:
        chat = chosen.chat(at_simulator(Account(), server.url))
        asking = asyncio.create_task(chat.complete("", "海", {}, mark="a"))
        await begun.wait()
        released.set()
        assert (await asking).text == "{}"
        await chat.close()


def test_a_process_that_ends_without_closing_it_ends() -> None:
    program = (
        "import asyncio\n"
        "from tidemill.clock import SystemClock\n"
        "from tidemill_apps.common.simulation import simulated\n"
        "async def main():\n"
        "    kept.append(opened := simulated('gemini', [], clock=SystemClock()))\n"
        "    print((await opened.__aenter__()).url)\n"
        "kept = []\n"
        "asyncio.run(main())\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert b"http://127.0.0.1:" in found.stdout


async def test_windows_pass_faster_by_its_scale() -> None:
    async with simulated("gemini", QUOTAS, clock=SystemClock(), scale=600) as server:
        chat = chosen.chat(at_simulator(Account(), server.url))
        for _ in range(5):
            await chat.complete("", "海", {}, mark="a")
        last = server.provider.ledger.arrivals[-1].at
        await server.provider.until(last + 61)
        await chat.complete("", "海", {}, mark="a")
        await chat.close()
    assert server.provider.ledger.refused == []
