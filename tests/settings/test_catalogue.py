"""The catalogue matches the options it sets, and no other variable is read from the environment."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import tidemill
from tests.docs.pages import page, rows, section
from tidemill import Retention
from tidemill.core.queues import QueueSettings
from tidemill.settings import Settings
from tidemill.settings.catalogue import CATALOGUE, OTHER_VARIABLES, SECTIONS, Setting, queue_catalogue
from tidemill.settings.worker_options import WorkerArguments
from tidemill.worker.options import WorkerOptions

NOT_FROM_OUTSIDE = {"id", "until_idle", "heartbeat_thread", "isolation"}
"""Variables of one run or of a test, not of a deployment."""


def test_every_option_of_a_worker_is_a_setting_with_its_default_x5() -> None:
    options = {field.name: field.default for field in dataclasses.fields(WorkerOptions)}
    settings = {
        name.removeprefix("worker."): its.default
        for name, its in CATALOGUE.items()
        if name.startswith("worker.")
    }
    assert settings.pop("queues") is None  # an application fills them in
    assert settings.pop("processes") is None  # of the supervisor above the workers
    assert settings.keys() == options.keys() - NOT_FROM_OUTSIDE - {"queues"}
    assert settings == {name: options[name] for name in settings}


def test_an_editor_knows_every_option_of_a_worker() -> None:
    assert list(WorkerArguments.__annotations__) == [
        field.name for field in dataclasses.fields(WorkerOptions)
    ]


def test_every_queue_option_is_a_setting_x5() -> None:
    assert tuple(queue_catalogue("feeds")) == QueueSettings.__struct_fields__


def test_names_and_variables_are_of_one_pattern() -> None:
    for name, setting in CATALOGUE.items():
        assert setting.variables[0] == "TIDEMILL_" + name.upper().replace(".", "_")
        assert "." not in name or name.partition(".")[0] in SECTIONS


def test_every_variable_in_the_source_is_known() -> None:
    sources = Path(tidemill.__file__).parent.rglob("*.py")
    named = {name for path in sources for name in re.findall(r"\bTIDEMILL_[A-Z_]+[A-Z]\b", path.read_text())}
    known = {name for setting in CATALOGUE.values() for name in setting.variables} | OTHER_VARIABLES.keys()
    assert named <= known | {"TIDEMILL_QUEUES"}


SETTINGS_PAGE = "reference/settings.md"


def _expected_row(setting: Setting) -> list[str]:
    variables = ", ".join(f"`{name}`" for name in setting.variables)
    key = setting.name.rpartition(".")[2]
    default = f"`{setting.default!r}`"
    if setting.name == "worker.queues":
        default = "every queue that was declared or that a task is on"
    return [f"`{key}`", default, variables, f"`{setting.name}`", setting.meaning]


@pytest.mark.parametrize(
    ("title", "settings"),
    [
        ("Where the store is", [CATALOGUE["url"]]),
        ("Which application", [CATALOGUE["app"]]),
        ("Queue", list(queue_catalogue("NAME").values())),
        ("Worker", [its for name, its in CATALOGUE.items() if name.startswith("worker.")]),
        ("Log", [its for name, its in CATALOGUE.items() if name.startswith("log.")]),
        ("Web", [its for name, its in CATALOGUE.items() if name.startswith("web.")]),
        ("Webhooks", [its for name, its in CATALOGUE.items() if name.startswith("webhooks.")]),
        ("Alerts", [its for name, its in CATALOGUE.items() if name.startswith("alerts.")]),
    ],
)
def test_every_setting_is_on_the_page_with_its_variable_key_and_default_x5(
    title: str, settings: list[Setting]
) -> None:
    documented = [row for row in rows(section(page(SETTINGS_PAGE), title)) if len(row) == 5 and row[2]]
    assert documented == [_expected_row(setting) for setting in settings]


def test_no_setting_is_without_a_section() -> None:
    assert {name.partition(".")[0] for name in CATALOGUE} == {
        "url",
        "app",
        "worker",
        "log",
        "web",
        "webhooks",
        "alerts",
    }


def test_other_variables_are_on_the_page() -> None:
    table = rows(section(page(SETTINGS_PAGE), "Where a value comes from"))
    assert {name.strip("`"): what for name, what in table} == OTHER_VARIABLES


def test_the_example_on_the_page_can_be_read(folder: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", page(SETTINGS_PAGE), re.DOTALL)
    assert example
    (folder / "tidemill.toml").write_text(example[1])
    loaded = Settings.load()
    assert loaded.configured("worker") == {"queues": {"feeds": 5, "mail": 1}, "concurrency": 20}
    assert loaded.queue("feeds") == {"max_length": 10_000, "keep_done": Retention(age=3600, count=100)}
