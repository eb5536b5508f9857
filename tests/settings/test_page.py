"""docs/reference/settings.md is the catalogue: nothing is left out, nothing is made up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import page, rows, section
from tidemill import Retention
from tidemill.settings import Settings
from tidemill.settings.catalogue import CATALOGUE, NOT_SETTINGS, Setting, of_queue

PAGE = "reference/settings.md"


def _row(setting: Setting) -> list[str]:
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
        ("Queue", list(of_queue("NAME").values())),
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
    documented = [row for row in rows(section(page(PAGE), title)) if len(row) == 5 and row[2]]
    assert documented == [_row(setting) for setting in settings]


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
    table = rows(section(page(PAGE), "Where a value comes from"))
    assert {name.strip("`"): what for name, what in table} == NOT_SETTINGS


def test_the_example_on_the_page_can_be_read(folder: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", page(PAGE), re.DOTALL)
    assert example
    (folder / "tidemill.toml").write_text(example[1])
    loaded = Settings.load()
    assert loaded.given("worker") == {"queues": {"feeds": 5, "mail": 1}, "concurrency": 20}
    assert loaded.queue("feeds") == {"max_length": 10_000, "keep_done": Retention(age=3600, count=100)}
