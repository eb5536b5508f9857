"""Renders the results of one store as Markdown: the targets first, then every number with its spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.chart import chart
from benchmarks.saved_runs import SavedRun
from benchmarks.targets import TARGETS, Results, TargetSource

NAMES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite"}


def save(kept: Path, run: SavedRun) -> None:
    """Writes the report next to the file of results."""
    report = markdown(run)
    kept.with_suffix(".md").write_text(report)
    kept.with_suffix(".svg").write_text(chart(NAMES[run.store], run.results))
    print(f"\n{report}\nWritten to {kept}, .md and .svg")


def markdown(run: SavedRun) -> str:
    lines = [f"# Tidemill on {NAMES[run.store]}, beside its peers", ""]
    lines += [f"- {name}: {value}" for name, value in run.about.items()]
    lines += steadiness(run)
    lines += ["", "## Targets", "", *targets(run), "", *failures(run)]
    lines += ["## Measured (median; lowest to highest round)", "", *numbers(run.results), ""]
    lines += ["## How each queue runs", "", *settings(run)]
    return "\n".join(lines) + "\n"


def steadiness(run: SavedRun) -> Iterator[str]:
    """Yields a sentence about the disk's variance, because it determines the durable figures."""
    bare = {"sqlite": "bare", "postgres": "bare-async"}.get(run.store)
    commits = TargetSource("enqueue_lone", (bare,), "jobs_per_second").rounds(run.results) if bare else {}
    if commits:
        low, high = min(commits.values()), max(commits.values())
        remark = "; the disk was shared, read durable figures as ratios only" if high > 1.5 * low else ""
        yield f"- disk: {short(low)} to {short(high)} bare durable commits a second{remark}"


def targets(run: SavedRun) -> Iterator[str]:
    yield "| what | target | median of the rounds | lowest to highest | |"
    yield "|---|---|---|---|---|"
    for target in TARGETS[run.store]:
        values = target.reached(run.results)
        goal = f"{target.what} | {target.bound} {target.goal:g} {target.unit}"
        if not values:
            yield f"| {goal} | not measured | | |"
            continue
        verdict = "met" if target.met(values) else "**missed**"
        yield f"| {goal} | {median_and_spread(values)} | {verdict} |"


def failures(run: SavedRun) -> Iterator[str]:
    if run.failed:
        yield from ("## What did not run", "", *(f"- {line}" for line in dict.fromkeys(run.failed)), "")


def numbers(results: Results) -> Iterator[str]:
    yield "| measurement | queue | figure | median | spread |"
    yield "|---|---|---|---|---|"
    for measurement, queues in results.items():
        for queue, rounds in queues.items():
            measured = [figures for figures in rounds if figures]
            for figure in measured[0] if measured else ():
                values = [figures[figure] for figures in measured]
                yield f"| {measurement} | {queue} | {figure} | {median_and_spread(values)} |"


def median_and_spread(values: list[float]) -> str:
    return f"{short(statistics.median(values))} | {short(min(values))} to {short(max(values))}"


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def settings(run: SavedRun) -> Iterator[str]:
    yield "| queue | settings | when it forgets a job |"
    yield "|---|---|---|"
    for queue, (said, acknowledges) in sorted(run.how.items()):
        yield f"| {queue} | {said} | {acknowledges} |"
