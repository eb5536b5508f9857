"""The catalogue agrees with what it sets, and nothing else is read from the environment."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import tidemill
from tidemill.core.queues import QueueSettings
from tidemill.settings.arguments import WorkerArguments
from tidemill.settings.catalogue import CATALOGUE, NOT_SETTINGS, SECTIONS, of_queue
from tidemill.worker.options import WorkerOptions

NOT_FROM_OUTSIDE = {"id", "until_idle", "heartbeat_thread", "isolation"}
"""Of one run, or of a test: nothing that a deployment sets once."""


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


def test_every_setting_of_a_queue_is_one_x5() -> None:
    assert tuple(of_queue("feeds")) == QueueSettings.__struct_fields__


def test_names_and_variables_are_of_one_pattern() -> None:
    for name, setting in CATALOGUE.items():
        assert setting.variables[0] == "TIDEMILL_" + name.upper().replace(".", "_")
        assert "." not in name or name.partition(".")[0] in SECTIONS


def test_every_variable_in_the_source_is_known() -> None:
    sources = Path(tidemill.__file__).parent.rglob("*.py")
    named = {name for path in sources for name in re.findall(r"\bTIDEMILL_[A-Z_]+[A-Z]\b", path.read_text())}
    known = {name for setting in CATALOGUE.values() for name in setting.variables} | NOT_SETTINGS.keys()
    assert named <= known | {"TIDEMILL_QUEUES"}
