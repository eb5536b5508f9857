"""Writes the documentation page of a complete run, from one or several files of results.

python -m benchmarks.report_page benchmarks/results/<redis>.json benchmarks/results/<postgres>.json …"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.chart import chart
from benchmarks.report import NAMES, failures, numbers, settings, steadiness, targets
from benchmarks.saved_runs import SavedRun, read
from benchmarks.saved_runs import write as keep

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "benchmarks.md"

OPENING = Path(__file__).with_suffix(".md")


def write(runs: Iterable[SavedRun]) -> None:
    ordered = sorted(runs, key=lambda run: list(NAMES).index(run.store))
    for run in ordered:
        (PAGE.parent / _picture(run)).write_text(chart(NAMES[run.store], run.results))
        keep(PAGE.parent / _rounds(run), run)
    sections = [line for run in ordered for line in _section(run)]
    absent = [line for store in NAMES if store not in {run.store for run in ordered} for line in _none(store)]
    PAGE.write_text("\n".join([OPENING.read_text(), *sections, *absent]))
    print(f"Written: {PAGE}, its pictures and its figures")


def _section(run: SavedRun) -> Iterator[str]:
    yield from (f"## {NAMES[run.store]}", "")
    yield from (f"- {name}: {value}" for name, value in run.about.items())
    yield from steadiness(run)
    yield from ("", f"![Tidemill on {NAMES[run.store]}, beside its peers]({_picture(run)})", "")
    yield from ("### What was to be reached", "", *targets(run), "")
    yield from (line.replace("## ", "### ", 1) for line in failures(run))
    yield from ("### How each queue runs", "", *settings(run), "")
    yield from ("### Every figure", "", *numbers(run.results), "")
    yield from (f"Round by round, for programs: [{_rounds(run)}]({_rounds(run)}).", "")


def _none(store: str) -> Iterator[str]:
    told = f'Not in these runs. `make bench BENCH="--store {store}"` measures it.'
    yield from (f"## {NAMES[store]}", "", told, "")


def _rounds(run: SavedRun) -> str:
    return f"benchmarks-{run.store}.json"


def _picture(run: SavedRun) -> str:
    return f"benchmarks-{run.store}.svg"


if __name__ == "__main__":
    write(read(Path(name)) for name in sys.argv[1:])
