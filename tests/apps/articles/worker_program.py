"""A worker of its own, to be killed: `worker_program.py NAME FOLDER PROVIDER QDRANT`."""

from __future__ import annotations

import sys
from pathlib import Path

from tidemill import Tidemill
from tidemill_apps.articles.articles import Articles
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.common.providers.account import Account

if __name__ == "__main__":
    name, folder, provider, qdrant = sys.argv[1:]
    app = Tidemill(f"sqlite:///{Path(folder) / 'jobs.db'}")
    account = Account(provider="openai", base_url=f"{provider}/v1", dimensions=256, simulator=True)
    settings = ArticlesSettings(
        database_url=f"sqlite:///{Path(folder) / 'articles.db'}",
        qdrant_url=qdrant,
        embeddings=account,
        requests_per_window=0,
        linger=0.05,
        minding_seconds=0.5,
        retry_seconds=0.1,
    )
    Articles(app, settings)
    app.run_worker(id=name, lease=1.5, reclaim_every=0.3)
