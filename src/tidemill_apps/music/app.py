"""The application that `tidemill up music` runs, configured by its environment."""

from __future__ import annotations

import os

from tidemill_apps.common.live_settings import declare_live_settings
from tidemill_apps.common.settings import create_app, load_table, name_toml_keys
from tidemill_apps.music.pages import declare_pages
from tidemill_apps.music.routes import declare_routes
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import load_settings

app = create_app("sqlite:///music-jobs.db")
toml = load_table(app, "music")
with name_toml_keys("MUSIC_", os.environ, toml):
    music = Music(app, load_settings(toml=toml))
declare_routes(music)
declare_pages(music)
declare_live_settings(app, music.live_settings, music.prepare)
