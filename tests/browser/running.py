"""What `tidemill up tests.browser.running:app` runs, in the folder it is run in."""

from __future__ import annotations

from pathlib import Path

from tests.browser.studio import Studio

app = Studio("sqlite:///studio.db", Path.cwd()).app
