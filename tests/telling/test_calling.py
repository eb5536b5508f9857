"""Whoever does not answer holds up nobody: neither what else a process does nor its end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.telling.support import Receiver
from tidemill.telling.addresses import Allowed
from tidemill.telling.calling import called
from tidemill.telling.posting import post

HERE = Allowed.of(["127.0.0.1"])

PROGRAM = """
import asyncio, time
from tidemill.telling.calling import called

async def main():
    try:
        await asyncio.wait_for(called(lambda: time.sleep(60)), 0.05)
    except TimeoutError:
        print("nobody waits")

asyncio.run(main())
"""


async def test_a_receiver_that_hangs_takes_no_thread_in_which_a_store_is_read(receiver: Receiver) -> None:
    over = threading.Event()

    def hangs(_: object) -> None:
        over.wait(30)

    receiver.answers = hangs
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    calls = [
        asyncio.create_task(called(lambda: post(receiver.url, b"{}", {}, timeout=20, allowed=HERE)))
        for _ in range(3)
    ]
    async with asyncio.timeout(10):
        assert await asyncio.to_thread(lambda: "read") == "read"
    over.set()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await called(lambda: 1 / 0)


def test_a_process_ends_though_a_call_does_not() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=30, check=True)
    assert ran.stdout == b"nobody waits\n"
