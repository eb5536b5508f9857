"""The application that `tidemill up tests.browser.dubbing_app_entry:app` runs in the current folder."""

from __future__ import annotations

from pathlib import Path

from tests.browser.dubbing_app import DubbingApp

app = DubbingApp("sqlite:///studio.db", Path.cwd()).app
