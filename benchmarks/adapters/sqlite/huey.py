"""Huey on SQLite."""

from __future__ import annotations

import huey

from benchmarks.adapters.huey import HueyQueue

_CONSUMER = "consumer: 1 worker thread, polls after 0.1 s, backing off to 10 s (its defaults)"


class DurableHuey(HueyQueue):
    settings = f"SqliteHuey, WAL, synchronous=FULL (its default); {_CONSUMER}"

    def storage(self, url: str) -> huey.Huey:
        return huey.SqliteHuey(filename=f"{url}/huey.db")

    def close(self) -> None:
        self._huey.storage.close()


class HueyWithoutSync(DurableHuey):
    settings = f"SqliteHuey, WAL, synchronous=OFF (fsync=False); {_CONSUMER}"
    acknowledges = "deletes the job before it runs: a crash loses it; a power cut loses more"

    def storage(self, url: str) -> huey.Huey:
        return huey.SqliteHuey(filename=f"{url}/huey.db", fsync=False)
