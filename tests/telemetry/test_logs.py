"""The destination and format of log lines. Each test runs a separate program, since logging is set per
process."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from tidemill.errors import ConfigurationError
from tidemill.logs import configure
from tidemill.telemetry.events import AttemptStopped
from tidemill.telemetry.listeners import EventLogger

JOBS = """
import logging, structlog, sys
from tidemill import Retry, Tidemill

app = Tidemill("memory://")

@app.task(name="fine")
async def fine() -> None:
    structlog.get_logger().info("from structlog", text="新闻")
    logging.getLogger("library").warning("from logging %s", "新闻")

@app.task(name="isolated", isolate=True)
def isolated() -> None:
    structlog.get_logger().info("from structlog", place="process")
    logging.getLogger("library").warning("from logging")

@app.task(name="broken", retry=Retry(attempts=1))
def broken(token: str) -> None:
    try:
        len(token) / 0
    except ZeroDivisionError:
        structlog.get_logger().exception("structlog caught it")
        logging.getLogger("library").exception("logging caught it")
    raise ValueError("it is broken")

async def main(*names: str) -> None:
    async with app:
        for name in names:
            task = {"fine": fine, "isolated": isolated, "broken": broken}[name]
            await (task.using(trace="t-1").enqueue("sk-secret") if name == "broken" else
                   task.using(trace="t-1").enqueue())
        await app.worker(until_idle=True).run()
"""

RUN = "import asyncio, jobs\nfrom tidemill import logs\n{before}\nasyncio.run(jobs.main({names}))\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS)
    return tmp_path


def run(folder: Path, *names: str, before: str = "logs.configure(format='json')") -> str:
    program = RUN.format(before=before, names=", ".join(map(repr, names)))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""  # stdout is left to the program
    return done.stderr


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def by_event(text: str) -> dict[str, dict[str, Any]]:
    return {line["event"]: line for line in lines(text)}


def test_every_line_is_json_and_a_handlers_lines_carry_its_ids_q15(folder: Path) -> None:
    text = run(folder, "fine")
    logged = by_event(text)
    for event in ("from structlog", "from logging 新闻"):
        line = logged[event]
        assert (line["task"], line["attempt"], line["trace"]) == ("fine", 1, "t-1")
        assert len(line["job"]) == 32
    assert logged["from structlog"]["text"] == "新闻"
    assert "新闻" in text, "found by grep"
    assert (logged["from logging 新闻"]["level"], logged["from logging 新闻"]["logger"]) == (
        "warning",
        "library",
    )
    assert all("timestamp" in line and "level" in line for line in logged.values())
    assert "job" not in logged["worker started"]
    assert logged["worker stopped"]["done"] == 1


def test_an_isolated_handler_logs_like_its_worker_q15(folder: Path) -> None:
    logged = by_event(run(folder, "isolated"))
    for event in ("from structlog", "from logging"):
        assert (logged[event]["task"], logged[event]["trace"]) == ("isolated", "t-1")


def test_debug_shows_every_start_and_end_of_a_job_and_info_none_q15(folder: Path) -> None:
    at_info = [line["event"] for line in lines(run(folder, "fine"))]
    assert not {"job started", "job done"} & set(at_info)
    at_debug = by_event(run(folder, "fine", before="logs.configure(format='json', level='debug')"))
    started, done = at_debug["job started"], at_debug["job done"]
    assert started["level"] == done["level"] == "debug"
    assert started["job"] == done["job"]
    assert done["seconds"] >= 0


def test_a_higher_level_leaves_out_the_rest(folder: Path) -> None:
    text = run(folder, "fine", "broken", before="logs.configure(format='json', level='error')")
    assert {line["level"] for line in lines(text)} == {"error"}
    assert "job failed" in by_event(text)


@pytest.mark.parametrize("chosen", ["json", "console"])
def test_tracebacks_are_there_and_show_no_variables_i30(folder: Path, chosen: str) -> None:
    text = run(folder, "broken", before=f"logs.configure(format={chosen!r})")
    for sentence in ("structlog caught it", "logging caught it", "job failed"):
        assert sentence in text
    assert text.count("ZeroDivisionError") >= 2
    assert "in broken" in text, "where a failed job broke"
    assert "sk-secret" not in text


def test_a_console_that_is_no_terminal_gets_no_colours(folder: Path) -> None:
    text = run(folder, "fine", before="logs.configure(format='console')")
    assert "\x1b" not in text
    assert "worker stopped" in text


def test_auto_is_for_people_on_a_terminal_and_json_elsewhere(folder: Path) -> None:
    assert lines(run(folder, "fine", before="logs.configure()"))
    ours, theirs = pty.openpty()
    program = RUN.format(before="logs.configure()", names="'fine'")
    subprocess.run([sys.executable, "-c", program], cwd=folder, stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "\x1b" in shown
    assert not shown.startswith("{")


def test_without_configure_lines_still_go_to_stderr_and_logging_is_left_alone(folder: Path) -> None:
    stderr = run(folder, "fine", before="")
    assert '"event": "worker stopped"' in stderr
    assert "\nfrom logging 新闻\n" in stderr, "as Python does by itself"


def test_a_program_with_its_own_structlog_is_left_alone(folder: Path) -> None:
    own = (
        "import structlog, sys; structlog.configure(processors=[structlog.processors.KeyValueRenderer()], "
        "logger_factory=structlog.PrintLoggerFactory(sys.stderr)); "
        "logs.configure(format='json', level='debug')"
    )
    text = run(folder, "fine", before=own)
    assert "event='worker stopped'" in text
    assert "event='job started'" in text, "the level is Tidemill's, the looks are the program's"


def test_a_program_with_its_own_logging_is_left_alone(folder: Path) -> None:
    own = "import logging; logging.basicConfig(format='own: %(message)s'); logs.configure(format='json')"
    text = run(folder, "fine", before=own)
    assert "own: from logging 新闻" in text.splitlines()
    assert '"event": "worker stopped"' in text


def test_configured_again_the_last_word_counts(folder: Path) -> None:
    twice = "logs.configure(format='console', level='debug'); logs.configure(format='json', level='warning')"
    logged = lines(run(folder, "fine", before=twice))
    assert [line["event"] for line in logged] == ["from logging 新闻"]


def test_a_level_that_comes_after_the_application_holds_with_any_looks(folder: Path) -> None:
    own = (
        "import structlog, sys; structlog.configure(processors=[structlog.processors.KeyValueRenderer()], "
        "logger_factory=structlog.PrintLoggerFactory(sys.stderr)); logs.configure(level='error')"
    )
    assert "worker started" not in run(folder, "fine", before=own)


def test_of_a_flood_one_line_a_minute_is_shown() -> None:
    now = 1000.0
    write = EventLogger(lambda: now)
    lost = AttemptStopped(job="a", task="t", queue="q", trace="a", attempt=1, worker="w", seconds=1.0)
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            for _ in range(3):
                write(lost)
            now += 60.0
    assert [line["log_level"] for line in logged] == ["warning", "debug", "debug"] * 3


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"level": "loud"}, "log level: is 'loud'; give one of debug, info, warning, error, critical"),
        ({"format": "xml"}, "log format: is 'xml'; give auto, json or console"),
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        configure(**wrong)


def test_a_line_and_its_end_are_one_write(folder: Path) -> None:
    """Otherwise the lines of two processes that share stderr would mix."""
    (folder / "one.py").write_text(
        "import sys, structlog\nfrom tidemill import logs\n"
        "class Writes:\n"
        "    isatty = flush = lambda self: False\n"
        "    def write(self, text): sys.stdout.write(repr(text[-1:]) + ' ')\n"
        "sys.stderr = Writes()\nlogs.configure(format='json')\n"
        "structlog.get_logger().info('a')\nimport logging\nlogging.getLogger().warning('b')\n"
    )
    ran = subprocess.run([sys.executable, "one.py"], cwd=folder, capture_output=True, text=True, check=True)
    assert ran.stdout == r"'\n' '\n' "
