"""One worker process; `benchmarks.worker_processes` starts and kills it.

python -m benchmarks.worker_main <store> <queue> <url> <tally> <rows> <room> <row>"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.adapters import load_adapter
from benchmarks.start_log import StartLog


def main() -> None:
    store, queue, url, path, *numbers = sys.argv[1:]
    rows, room, row = map(int, numbers)
    adapter = load_adapter(store, queue)
    adapter.open(url)
    adapter.work(StartLog(Path(path), rows, room).row(row))


if __name__ == "__main__":
    main()
