"""What `tidemill up articles` runs: the application as the environment sets it."""

from __future__ import annotations

from tidemill_apps.articles.articles import Articles
from tidemill_apps.articles.settings import from_environment
from tidemill_apps.common.environment import application

app = application("sqlite:///articles-jobs.db")
articles = Articles(app, from_environment())
