"""The programs of the webhooks page work, with the receiver that the page shows."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.docs.page_runner import run_page, write_files
from tests.docs.pages import page
from tests.servers.program import free_port, wait_until


def test_the_page_on_webhooks_is_what_happens(tmp_path: Path) -> None:
    port = free_port()
    text = page("how-to/webhooks.md").replace("18099", str(port))
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    write_files(text, there)
    environment = {**os.environ, "WEBHOOK_SECRET": "a-secret-for-this-page"}
    with subprocess.Popen(
        [sys.executable, "receiver.py"],
        cwd=there,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as receiver:
        try:
            wait_until(lambda: _answers(port), "the receiver")
            assert run_page(text, here) > 0
        finally:
            receiver.terminate()
        assert receiver.stdout is not None
        assert receiver.stdout.read() == "{'event': 'feed.refreshed', 'feedId': 7, 'articleCount': 12}\n"


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
