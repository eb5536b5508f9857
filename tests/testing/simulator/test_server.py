"""The provider over real HTTP, at a scale at which a minute takes less than half a second."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from typing import Any

import httpx2
import pytest

from tests.testing.simulator.client_requests import chat_request
from tidemill.clock import SystemClock
from tidemill.testing.simulator import (
    DIALECTS,
    Quota,
    SimulatedProvider,
    SimulatorOptions,
    SimulatorRequest,
    SimulatorServer,
    parse_request_log,
)

SCALE = 150.0
"""A minute is 0.4 s."""


def provider(name: str, *quotas: Quota, scale: float = SCALE, **options: Any) -> SimulatedProvider:
    return SimulatedProvider(
        DIALECTS[name](), quotas, SimulatorOptions(**options), clock=SystemClock(), scale=scale
    )


async def post(client: httpx2.AsyncClient, url: str, request: SimulatorRequest) -> httpx2.Response:
    return await client.post(url + request.path, json=request.body, headers=request.headers)


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "glm"])
async def test_every_dialect_is_served_at_its_path(name: str) -> None:
    async with (
        SimulatorServer(provider(name, Quota.rolling("requests", 5))) as server,
        httpx2.AsyncClient() as client,
    ):
        response = await post(client, server.url, chat_request(name))
        assert response.status_code == 200
        assert response.headers["x-simulator"] == "tidemill"
        assert (await client.post(f"{server.url}/nothing", json={})).status_code == 404


async def test_two_clients_at_once_share_the_quota_and_a_window_later_there_is_a_new_one() -> None:
    used = provider("gemini", Quota.rolling("requests", 10), latency=(1.0, 5.0))
    async with SimulatorServer(used) as server, httpx2.AsyncClient() as one, httpx2.AsyncClient() as two:
        calls = [
            post(client, server.url, chat_request("gemini", mark=str(n)))
            for n in range(8)
            for client in (one, two)
        ]
        statuses = [response.status_code for response in await asyncio.gather(*calls)]
        request_log = used.request_log
        admitted = [arrival.at for arrival in request_log.arrivals if arrival.admitted]
        assert (statuses.count(200), statuses.count(429)) == (len(admitted), len(request_log.refused))
        assert len(statuses) == 16
        # A machine that stalls for a whole window has seen the next one begin.
        assert len(admitted) == 10 or admitted[-1] - admitted[0] >= 60
        assert len(request_log.bills) == len(admitted)
        assert request_log.unknown == []
        await used.until(request_log.arrivals[-1].at + 60)
        assert (await post(one, server.url, chat_request("gemini"))).status_code == 200
        assert used.request_log.max_units_in_window("requests", 60) == 10


async def test_an_answer_lost_after_billing_is_a_cut_connection() -> None:
    used = provider("openai", Quota.rolling("requests", 10), lost=frozenset({1}))
    async with SimulatorServer(used) as server, httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.TransportError):
            await post(client, server.url, chat_request("openai", mark="a"))
        assert [(bill.mark, bill.answered) for bill in used.request_log.bills] == [("a", False)]
        assert (await post(client, server.url, chat_request("openai", mark="a"))).status_code == 200
        assert used.request_log.duplicate_payments() == {"a": 1}


async def test_a_caller_that_hangs_up_is_billed_and_does_not_know() -> None:
    used = provider("openai", Quota.rolling("requests", 10), latency=(30.0, 30.0))
    async with SimulatorServer(used) as server:
        host, port = server.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(chat_request("openai").body).encode()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        while not used.request_log.bills:
            await used.until(used.now + 5)
        assert len(used.request_log.unknown) == 1


async def test_bad_requests_are_answered_with_a_sentence() -> None:
    async with SimulatorServer(provider("openai", Quota.rolling("requests", 10))) as server:
        async with httpx2.AsyncClient() as client:
            broken = await client.post(f"{server.url}/v1/embeddings", content=b"{")
            assert broken.status_code == 400
            assert "not JSON" in broken.json()["error"]
            listed = await client.post(f"{server.url}/v1/embeddings", content=b"[]")
            assert "JSON object" in listed.json()["error"]
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"hello\r\n\r\n")
        assert b"not an HTTP request" in await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_its_books_and_what_it_is_can_be_read() -> None:
    used = provider("openai", Quota.rolling("requests", 1), scale=1.0)
    async with SimulatorServer(used) as server, httpx2.AsyncClient() as client:
        for _ in range(2):
            await post(client, server.url, chat_request("openai", mark="a"))
        books = parse_request_log((await client.get(f"{server.url}/simulator/requests")).content)
        assert books == used.request_log
        assert [refusal.quotas for refusal in books.refused] == [("requests per minute",)]
        page = await client.get(server.url)
        assert page.headers["x-simulator"] == "tidemill"
        assert "simulator of the openai API" in page.text
        assert (await client.get(f"{server.url}/v1/models")).status_code == 404


def test_it_runs_as_a_program_and_says_what_it_is() -> None:
    command = [sys.executable, "-m", "tidemill.testing.simulator", "--dialect", "gemini", "--port", "0"]
    command += ["--quota", "rolling requests 1/60", "--scale", "30", "--options", '{"latency": [0.1, 0.1]}']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert "simulates the gemini API" in line
            url = line.split()[0]
            sent = chat_request("gemini")
            body = urllib.request.Request(url + sent.path, json.dumps(sent.body).encode(), sent.headers)  # noqa: S310 - ours
            with urllib.request.urlopen(body) as answer:  # noqa: S310 - ours
                assert answer.headers["x-simulator"] == "tidemill"
            with urllib.request.urlopen(f"{url}/simulator/requests") as books:  # noqa: S310 - ours
                assert [bill.mark for bill in parse_request_log(books.read()).bills] == ["job-1"]
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--quota", "rolling reqests 1/60"], "reqests is not one of requests"),
        (["--quota", "daily 5"], "is not a quota; write it as"),
        (["--quota", "day requests 5 Atlantis/Deep"], "Atlantis/Deep"),
        (["--quota", "concurrent 5"], "gemini never refuses for: concurrency"),
        (["--options", '{"jiter": 1}'], "unknown field `jiter`"),
    ],
)
def test_command_line_errors_are_printed_without_a_traceback(arguments: list[str], sentence: str) -> None:
    command = [sys.executable, "-m", "tidemill.testing.simulator", "--dialect", "gemini", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr
