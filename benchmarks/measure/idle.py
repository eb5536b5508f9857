"""What a worker costs while there is nothing to do."""

from __future__ import annotations

import time

from benchmarks.adapters import Adapter


def idle(adapter: Adapter, seconds: float) -> dict[str, float]:
    with adapter.serve(lambda _: None):
        time.sleep(2)  # past the start
        cpu, began = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        share = (time.process_time() - cpu) / (time.perf_counter() - began)
    return {"cpu_percent_of_a_core": share * 100}
