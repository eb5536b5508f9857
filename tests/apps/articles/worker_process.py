"""Worker processes to be killed: `worker_process.py NAMES FOLDER PROVIDER QDRANT` prints the name and the
process id of each. The imports happen once, before the fork."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from tidemill import Tidemill
from tidemill_apps.articles.service import Articles
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.common.model_clients import ProviderAccount


def work(name: str, folder: str, provider: str, qdrant: str) -> None:
    app = Tidemill(f"sqlite:///{Path(folder) / 'jobs.db'}")
    account = ProviderAccount(provider="openai", base_url=f"{provider}/v1", dimensions=256, simulator=True)
    settings = ArticlesSettings(
        database_url=f"sqlite:///{Path(folder) / 'articles.db'}",
        qdrant_url=qdrant,
        embeddings=account,
        requests_per_window=0,
        linger=0.05,
        reconcile_seconds=0.5,
        retry_seconds=0.1,
    )
    Articles(app, settings)
    app.run_worker(id=name, lease=1.5, reclaim_every=0.3)


if __name__ == "__main__":
    names, *places = sys.argv[1:]
    import_module("qdrant_client")
    for name in names.split(","):
        if not (process := os.fork()):
            work(name, *places)
            os._exit(0)
        print(name, process, flush=True)
    with suppress(ChildProcessError):
        while True:
            os.wait()
