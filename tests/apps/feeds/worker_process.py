"""Worker processes to be killed: `worker_process.py NAMES JOBS DATABASE SETTINGS` prints the name and the
process id of each. The imports happen once, before the fork."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib import import_module

import msgspec

from tidemill import Tidemill
from tidemill_apps.feeds.service import Feeds
from tidemill_apps.feeds.settings import FeedsSettings


def work(name: str, jobs: str, database: str, settings: str) -> None:
    app = Tidemill(jobs)
    Feeds(app, msgspec.convert({"database_url": database, **json.loads(settings)}, FeedsSettings))
    app.run_worker(id=name, lease=2.0, reclaim_every=0.5)


if __name__ == "__main__":
    names, *places = sys.argv[1:]
    import_module("feedparser")
    for name in names.split(","):
        if not (process := os.fork()):
            work(name, *places)
            os._exit(0)
        print(name, process, flush=True)
    with suppress(ChildProcessError):
        while True:
            os.wait()
