"""The music application as its environment sets it up: `tidemill up music`."""

from __future__ import annotations

import os

from tidemill_apps.common.environment import application
from tidemill_apps.common.toml import naming, table
from tidemill_apps.music.music import Music
from tidemill_apps.music.settings import from_environment

app = application("sqlite:///music-jobs.db")
toml = table(app, "music")
with naming("MUSIC_", os.environ, toml):
    music = Music(app, from_environment(toml=toml))
