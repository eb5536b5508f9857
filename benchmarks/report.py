"""Results as Markdown: the targets first, then every number with its spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.adapters import ADAPTERS, load
from benchmarks.targets import TARGETS, Results, Source


def markdown(results: Results, machine: dict[str, str]) -> str:
    lines = ["# Tidemill on SQLite, beside its peers", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    lines += _steadiness(results)
    lines += ["", *_targets(results), "", *_numbers(results), "", *_settings(results)]
    return "\n".join(lines) + "\n"


def _steadiness(results: Results) -> Iterator[str]:
    """Durable figures are the disk's figures: say how steady it was."""
    commits = Source("enqueue_lone", "bare", "jobs_per_second").rounds(results)
    if commits:
        low, high = min(commits), max(commits)
        remark = "; the disk was shared, read durable figures as ratios only" if high > 1.5 * low else ""
        yield f"- disk: {_short(low)} to {_short(high)} bare durable commits a second{remark}"


def _targets(results: Results) -> Iterator[str]:
    yield "## Targets"
    yield ""
    yield "| what | target | median of the rounds | lowest to highest | |"
    yield "|---|---|---|---|---|"
    for target in TARGETS:
        values = target.reached(results)
        goal = f"{target.what} | {target.bound} {target.goal:g} {target.unit}"
        if not values:
            yield f"| {goal} | not measured | | |"
            continue
        verdict = "pass" if target.met(values) else "**miss**"
        yield f"| {goal} | {_median_and_spread(values)} | {verdict} |"


def _numbers(results: Results) -> Iterator[str]:
    yield "## Measured (median; lowest to highest round)"
    yield ""
    yield "| measurement | queue | figure | median | spread |"
    yield "|---|---|---|---|---|"
    for measurement, queues in results.items():
        for queue, rounds in queues.items():
            for figure in rounds[0] if rounds else ():
                values = [numbers[figure] for numbers in rounds]
                yield f"| {measurement} | {queue} | {figure} | {_median_and_spread(values)} |"


def _median_and_spread(values: list[float]) -> str:
    return f"{_short(statistics.median(values))} | {_short(min(values))} to {_short(max(values))}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _settings(results: Results) -> Iterator[str]:
    yield "## How each queue runs"
    yield ""
    yield "| queue | settings | when it forgets a job |"
    yield "|---|---|---|"
    for queue in ADAPTERS:
        if any(queue in queues for queues in results.values()):
            adapter = load(queue)
            yield f"| {queue} | {adapter.settings} | {adapter.acknowledges} |"
