"""Adds the page templates of an application, and the templates that all applications share.

Import the shared macros with context: `{% import "app_parts.html" as app_parts with context %}`.
"""

from __future__ import annotations

from pathlib import Path

from tidemill import Tidemill

SHARED_TEMPLATES = Path(__file__).with_name("templates")


def add_templates(app: Tidemill, folder: Path) -> None:
    """Adds the templates in `folder` and the shared ones. The shared ones are added once per application."""
    if SHARED_TEMPLATES not in app.web.folders:
        app.web.templates(SHARED_TEMPLATES)
    app.web.templates(folder)
