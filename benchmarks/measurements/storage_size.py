"""The size of a waiting job in the store: memory in Redis, disk elsewhere."""

from __future__ import annotations

import base64
import json
import random

from benchmarks.case import Case

PAYLOAD = 208
"""Bytes of a job's arguments as JSON."""

WARM_UP = 128


def footprint(case: Case) -> dict[str, float]:
    adapter = case.adapter()
    adapter.open(case.place.url)
    try:
        adapter.preload(WARM_UP, text())
        before = case.place.bytes_used()
        adapter.preload(int(case.size), text())
        return {"bytes_per_job": (case.place.bytes_used() - before) / int(case.size)}
    finally:
        adapter.close()


def text() -> str:
    """Returns a text that hardly compresses."""
    room = PAYLOAD - len(json.dumps({"sent": 0.0, "text": ""}, separators=(",", ":")))
    return base64.b64encode(random.Random(1).randbytes(room)).decode()[:room]
