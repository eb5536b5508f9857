"""Measures the lateness of ten thousand schedules that are due at one instant, and within one minute.

python -m benchmarks.schedule_delay [redis] [postgres] [sqlite]"""

from __future__ import annotations

import sys

from benchmarks.empty_stores import create_factory
from benchmarks.plan import STORES
from benchmarks.run import probe

SCHEDULES = 10_000
PATIENCE = 300.0


def main() -> None:
    for store in sys.argv[1:] or STORES:
        with create_factory(store, None) as around:
            for measurement in ("schedules_at_once", "schedules_spread"):
                with around.empty() as place:
                    late = probe(measurement, "tidemill", place, SCHEDULES, PATIENCE).figures
                figures = ", ".join(f"{name} {value:,.1f}" for name, value in late.items())
                print(f"{store} {measurement}: {figures}", flush=True)


if __name__ == "__main__":
    main()
