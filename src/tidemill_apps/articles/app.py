"""What `tidemill up articles` runs: the application as the environment sets it."""

from __future__ import annotations

import gc
import os

from tidemill.telemetry.events import WorkerStarted
from tidemill_apps.articles.articles import Articles
from tidemill_apps.articles.settings import PREFIX, from_environment
from tidemill_apps.common.environment import application
from tidemill_apps.common.toml import naming, table

app = application("sqlite:///articles-jobs.db")
toml = table(app, "articles")
with naming(PREFIX, os.environ, toml):
    articles = Articles(app, from_environment(toml=toml))


@app.on(WorkerStarted)
def settled(_: WorkerStarted) -> None:
    """What is there by now stays there. To look for garbage among it would take 0.14 s every now and then, in
    which nobody's save is answered."""
    gc.collect()
    gc.freeze()
