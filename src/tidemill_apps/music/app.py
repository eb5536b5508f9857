"""The music application as its environment sets it up: `tidemill up music`."""

from __future__ import annotations

from tidemill_apps.common.environment import application
from tidemill_apps.common.toml import table
from tidemill_apps.music.music import Music
from tidemill_apps.music.settings import from_environment

app = application("sqlite:///music-jobs.db")
music = Music(app, from_environment(toml=table(app, "music")))
