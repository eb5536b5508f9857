"""Huey on Redis."""

from __future__ import annotations

import huey

from benchmarks.adapters.huey import HueyQueue


class HueyOnRedis(HueyQueue):
    settings = "RedisHuey, blocking pop, no results; consumer: 1 worker thread (its default)"

    def storage(self, url: str) -> huey.Huey:
        return huey.RedisHuey("bench", url=url, results=False)
