"""Results as Markdown: the targets first, then every number with its spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.adapters import ADAPTERS, load
from benchmarks.targets import TARGETS, Results, Rounds


def markdown(results: Results, machine: dict[str, str]) -> str:
    lines = ["# Tidemill on SQLite, beside its peers", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    lines += ["", *_targets(results), "", *_numbers(results), "", *_settings(results)]
    return "\n".join(lines) + "\n"


def _targets(results: Results) -> Iterator[str]:
    yield "## Targets"
    yield ""
    yield "| what | target | measured | |"
    yield "|---|---|---|---|"
    for target in TARGETS:
        value = target.reached(results)
        if value is None:
            yield f"| {target.what} | {target.bound} {target.goal:g} {target.unit} | not measured | |"
            continue
        verdict = "pass" if target.met(value) else "**miss**"
        yield (
            f"| {target.what} | {target.bound} {target.goal:g} {target.unit} "
            f"| {value:.3g} {target.unit} | {verdict} |"
        )


def _numbers(results: Results) -> Iterator[str]:
    yield "## Measured (median; lowest to highest round)"
    yield ""
    yield "| measurement | queue | figure | median | spread |"
    yield "|---|---|---|---|---|"
    for measurement, queues in results.items():
        for queue, rounds in queues.items():
            for figure in rounds[0] if rounds else ():
                yield f"| {measurement} | {queue} | {figure} | {_spread(rounds, figure)} |"


def _spread(rounds: Rounds, figure: str) -> str:
    values = [numbers[figure] for numbers in rounds]
    low, high = min(values), max(values)
    return f"{_short(statistics.median(values))} | {_short(low)} to {_short(high)}"


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
