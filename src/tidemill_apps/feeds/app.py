"""The application that `tidemill up feeds` runs, configured by its environment."""

from __future__ import annotations

import os

from tidemill_apps.common.settings import create_app, load_table, name_toml_keys
from tidemill_apps.feeds.alerts import declare_alerts
from tidemill_apps.feeds.pages import FeedPages
from tidemill_apps.feeds.routes import FeedActions, FeedRoutes
from tidemill_apps.feeds.service import Feeds
from tidemill_apps.feeds.settings import PREFIX, load_settings

app = create_app("sqlite:///feeds-jobs.db")
toml = load_table(app, "feeds")
with name_toml_keys(PREFIX, os.environ, toml):
    feeds = Feeds(app, load_settings(toml=toml))
actions = FeedActions(feeds)
FeedRoutes(actions).declare()
FeedPages(actions).declare()
declare_alerts(feeds)
