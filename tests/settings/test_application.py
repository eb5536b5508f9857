"""The effect of settings on an application (X5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill import ConfigurationError, QueueSettings, Retention, Tidemill
from tidemill.stores.memory import MemoryStore


def test_a_file_declares_queues_and_fills_in_what_code_leaves_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "tidemill.toml").write_text(
        "[queues.feeds]\nweight = 5\nconcurrency = 2\nmax_length = 7\n[queues.mail]\nweight = 3\n"
    )
    monkeypatch.setenv("TIDEMILL_QUEUES_FEEDS_CONCURRENCY", "4")
    app = Tidemill("memory://")
    assert app.queue("feeds", weight=9) == QueueSettings(weight=9, concurrency=4, max_length=7)
    assert app.queues["mail"] == QueueSettings(weight=3)
    assert {entry.name: entry.origin for entry in app.settings.effective() if "queues." in entry.name} == {
        "queues.feeds.weight": "argument",
        "queues.feeds.concurrency": "environment TIDEMILL_QUEUES_FEEDS_CONCURRENCY",
        "queues.feeds.max_length": "tidemill.toml",
        "queues.mail.weight": "tidemill.toml",
    }
    with pytest.raises(ConfigurationError, match="declared twice"):
        app.queue("feeds", weight=3)


def test_code_may_remove_a_limit_of_the_file(folder: Path) -> None:
    (folder / "tidemill.toml").write_text("[queues.feeds]\nconcurrency = 2\n")
    assert Tidemill("memory://").queue("feeds", concurrency=None).concurrency is None


async def test_queues_of_the_settings_are_written_to_the_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "tidemill.toml").write_text("[queues.feeds]\nkeep_done = { count = 5 }\n")
    monkeypatch.setenv("TIDEMILL_QUEUES_MAIL_WEIGHT", "4")
    app = Tidemill("memory://")

    @app.task(queue="mail")
    def send() -> None: ...

    async with app:
        declared = {info.name: info.declared for info in await app.store.queues()}
    assert declared == {
        "feeds": QueueSettings(keep_done=Retention(count=5)),
        "mail": QueueSettings(weight=4),
    }


def test_a_worker_takes_its_options_from_everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tidemill.toml").write_text(
        "worker = { concurrency = 2, lease = 40, grace = 1 }\n[queues.a]\nweight = 6"
    )
    monkeypatch.setenv("TIDEMILL_WORKER_LEASE", "50")
    monkeypatch.setenv("TIDEMILL_WORKER_QUEUES", "a,b=2")
    options = Tidemill("memory://").worker_options(grace=3)
    assert (options.concurrency, options.lease, options.grace, options.poll) == (2, 50.0, 3, 2.0)
    assert options.queues == {"a": 6, "b": 2}
    assert Tidemill("memory://").worker_options(queues=["b"]).queues == {"b": 1}


@pytest.mark.parametrize(
    ("name", "url", "says"),
    [
        ("REDIS_URL", "http://:sk-secret@host", ["unknown scheme in 'http://***'", "set TIDEMILL_URL"]),
        ("DATABASE_URL", "mysql://sk-secret@h/db", ["unknown scheme in 'mysql://***'", "set TIDEMILL_URL"]),
        ("DATABASE_URL", "sqlite:///db.sqlite3", ["another program's database", "set TIDEMILL_URL"]),
        ("TIDEMILL_URL", "amqp://:sk-secret@host", ["amqp:// stores are not available"]),
    ],
)
def test_a_store_that_cannot_be_used_names_where_it_came_from_x5(
    monkeypatch: pytest.MonkeyPatch, name: str, url: str, says: list[str]
) -> None:
    monkeypatch.setenv(name, url)
    with pytest.raises(ConfigurationError) as caught:
        Tidemill()
    assert str(caught.value).startswith(f"url from environment {name}: ")
    assert all(part in str(caught.value) for part in says), str(caught.value)
    assert "sk-secret" not in str(caught.value)
    assert Tidemill("memory://").url.scheme == "memory"
    own = Tidemill(store=MemoryStore())
    assert own.has_own_store
    assert str(own.url) == "a store of the program's own"


def test_a_file_names_the_store(folder: Path) -> None:
    (folder / "tidemill.toml").write_text('url = "sqlite:///of-the-file.db"')
    assert Tidemill().url.path == "of-the-file.db"
    (folder / "other.toml").write_text('url = "jobs.db"')
    with pytest.raises(ConfigurationError, match=r"url from other\.toml: it has no scheme"):
        Tidemill(config="other.toml")


PROGRAM = """
from tidemill import Tidemill

app = Tidemill("memory://")

@app.task(name="send")
async def send() -> None: ...

async def main() -> None:
    async with app:
        await send.enqueue()
        await app.worker(until_idle=True).run()

import asyncio
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("level", "style", "lines"), [("", "", 0), ("debug", "", 2), ("debug", "console", 2)]
)
def test_a_worker_logs_by_its_settings(folder: Path, level: str, style: str, lines: int) -> None:
    """At level `debug` the start and the end of a job are logged."""
    environment = os.environ | {"TIDEMILL_LOG_LEVEL": level, "TIDEMILL_LOG_FORMAT": style}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environment)
    logged = [line for line in done.stderr.splitlines() if "send" in line]
    assert len(logged) >= lines
    assert bool(logged) == bool(lines)
    assert all(line.startswith("{") != (style == "console") for line in logged)
