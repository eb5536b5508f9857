"""X6: the deploy folder works: its commands exist, and its settings are read."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.docs.page_runner import code_blocks
from tests.docs.pages import page
from tidemill.cli.root import root

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = sorted(DEPLOY.glob("compose.*.yaml"))
CONTAINERS = page("how-to/containers.md")


def parsed(arguments: list[str]) -> click.Context:
    """Parses the arguments with the real command line, which raises an error for unknown ones."""
    command = root.get_command(click.Context(root), arguments[0])
    assert command is not None
    return command.make_context(arguments[0], arguments[1:])


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_x6_compose_files_start_workers_that_the_command_line_knows(path: Path) -> None:
    services: dict[str, Any] = yaml.safe_load(path.read_text())["services"]
    command = ["shop.jobs:app" if "APP" in word else word for word in services["worker"]["command"]]
    grace = parsed(command).params["grace"]
    assert grace < float(services["worker"]["stop_grace_period"].removesuffix("s"))
    (server,) = set(services) - {"worker", "web"}
    check = services[server]["healthcheck"]
    assert (check["interval"], check["timeout"], check["retries"]) == ("10s", "3s", 3)
    assert services[server]["volumes"]
    assert server in services["worker"]["environment"]["TIDEMILL_URL"]


def test_x6_redis_fsyncs_every_write_and_never_evicts() -> None:
    services = yaml.safe_load((DEPLOY / "compose.redis.yaml").read_text())["services"]
    command = " ".join(services["redis"]["command"])
    assert "--appendonly yes --appendfsync always --maxmemory-policy noeviction" in command


def test_x6_a_password_may_have_any_characters() -> None:
    worker = yaml.safe_load((DEPLOY / "compose.postgres.yaml").read_text())["services"]["worker"]
    assert "${" not in worker["environment"]["TIDEMILL_URL"]
    assert worker["environment"]["PGPASSWORD"] == "${POSTGRES_PASSWORD}"


def test_x6_the_page_starts_what_is_there_with_all_it_asks_for() -> None:
    started = re.findall(r"^(.*)docker compose -f deploy/(\S+)", CONTAINERS, re.MULTILINE)
    assert sorted(name for _, name in started) == [path.name for path in COMPOSE]
    for given, name in started:
        required = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / name).read_text()))
        assert required <= set(re.findall(r"(\w+)=", given))


def test_x6_the_page_puts_a_command_on_top_that_exists() -> None:
    image = next(body for language, body in code_blocks(CONTAINERS) if language == "dockerfile")
    command = re.search(r"^CMD (\[.*\])$", image, re.MULTILINE)
    assert command is not None
    assert parsed(json.loads(command[1])).params["grace"] > 0


def test_x6_the_unit_waits_longer_than_its_worker() -> None:
    unit = (DEPLOY / "tidemill-worker@.service").read_text()
    line = re.search(r"^ExecStart=\S+/tidemill (.*)$", unit, re.MULTILINE)
    patience = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert line is not None
    assert patience is not None
    assert parsed(shlex.split(line[1].replace("%i", "shop.jobs:app"))).params["grace"] < int(patience[1])


def test_x6_the_image_is_not_root_and_says_whether_it_lives() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER tidemill$", image, re.MULTILINE)
    check = re.search(r"^HEALTHCHECK .*?CMD (\[.*?\])$", image, re.MULTILINE | re.DOTALL)
    assert check is not None
    program, *command = json.loads(check[1])
    assert program == "tidemill"
    assert parsed(command).params["here"]
