"""The pages for operators: the systemd unit starts a worker, and quotes of the doctor are exact (X7)."""

from __future__ import annotations

import configparser
import shlex
from itertools import chain
from pathlib import Path

import click
import pytest

from tests.docs.page_runner import code_blocks
from tests.docs.pages import ROOT, page, rows
from tidemill.cli.root import root

UNIT = next(body for language, body in code_blocks(page("how-to/deploy.md")) if language == "ini")
SAID = [row[0].strip("`") for row in rows(page("how-to/troubleshooting.md"))]


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names of systemd are capitalised
    parser.read_string(UNIT)
    return parser["Service"]


def test_the_unit_starts_a_worker_and_waits_longer_than_its_grace() -> None:
    program, command, *arguments = shlex.split(unit()["ExecStart"])
    assert Path(program).name == "tidemill"
    worker = root.get_command(click.Context(root), command)
    assert worker is not None
    context = worker.make_context(command, arguments)
    assert context.params["processes"] == 2
    assert float(unit()["TimeoutStopSec"]) > context.params["grace"]


@pytest.mark.parametrize("words", SAID)
def test_the_doctor_says_what_the_page_quotes(words: str) -> None:
    """Printed by the commands, or by a store itself."""
    stores = [(ROOT / "src/tidemill/stores" / name).glob("*.py") for name in ("sqlite", "redis", "postgres")]
    places = [*(ROOT / "src/tidemill/cli").rglob("*.py"), *chain(*stores)]
    assert any(words in path.read_text(encoding="utf-8") for path in places)
