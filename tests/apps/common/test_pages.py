"""The page parts that the applications share."""

from __future__ import annotations

from pathlib import Path

from tidemill import Tidemill
from tidemill_apps.common.pages import SHARED_TEMPLATES, add_templates


def test_the_shared_templates_are_added_once(tmp_path: Path) -> None:
    app = Tidemill("memory://")
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        add_templates(app, folder)
    assert app.web.folders == [SHARED_TEMPLATES, first, second]


def test_a_template_of_an_application_does_not_hide_a_shared_one() -> None:
    shared = {file.name for file in SHARED_TEMPLATES.glob("*.html")}
    applications = [folder for folder in SHARED_TEMPLATES.parent.parent.iterdir() if folder.name != "common"]
    own = {file.name for folder in applications for file in (folder / "templates").glob("*.html")}
    assert shared
    assert shared & own == set()
