"""The application that `tidemill up podcasts` runs, configured by its environment."""

from __future__ import annotations

import os

from tidemill_apps.common.settings import create_app, load_table, name_toml_keys
from tidemill_apps.podcasts.feed import PodcastFeedRoutes
from tidemill_apps.podcasts.pages import PodcastPages
from tidemill_apps.podcasts.routes import PodcastRoutes
from tidemill_apps.podcasts.service import Podcasts
from tidemill_apps.podcasts.settings import PREFIX, load_settings

app = create_app("sqlite:///podcasts-jobs.db")
toml = load_table(app, "podcasts")
with name_toml_keys(PREFIX, os.environ, toml):
    podcasts = Podcasts(app, load_settings(toml=toml))
feeds = PodcastFeedRoutes(podcasts)
feeds.declare()
PodcastRoutes(podcasts, feeds).declare()
PodcastPages(podcasts, feeds).declare()
