"""One worker process; `benchmarks.team` starts and kills it.

python -m benchmarks.work <store> <queue> <url> <tally> <rows> <room> <row>
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.adapters import load
from benchmarks.tally import Tally


def main() -> None:
    store, queue, url, path, *numbers = sys.argv[1:]
    rows, room, row = map(int, numbers)
    adapter = load(store, queue)
    adapter.open(url)
    adapter.work(Tally(Path(path), rows, room).row(row))


if __name__ == "__main__":
    main()
