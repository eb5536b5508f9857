"""Results of one store as Markdown: the targets first, then every number with its spread."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.adapters import ADAPTERS, load
from benchmarks.chart import chart
from benchmarks.targets import TARGETS, Results, Source

FOLDER = Path(__file__).parent / "results"
NAMES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite"}


@dataclass
class Run:
    store: str
    about: dict[str, str]
    results: Results = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def save(run: Run) -> Path:
    FOLDER.mkdir(exist_ok=True)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{run.store}"
    report = markdown(run)
    (FOLDER / f"{name}.json").write_text(json.dumps(asdict(run), indent=1) + "\n")
    (FOLDER / f"{name}.md").write_text(report)
    (FOLDER / f"{name}.svg").write_text(chart(NAMES[run.store], run.results))
    print(f"\n{report}\nWritten to {FOLDER / name}.md, .json and .svg")
    return FOLDER / f"{name}.json"


def markdown(run: Run) -> str:
    lines = [f"# Tidemill on {NAMES[run.store]}, beside its peers", ""]
    lines += [f"- {name}: {value}" for name, value in run.about.items()]
    lines += steadiness(run)
    lines += ["", "## Targets", "", *targets(run), "", *failures(run)]
    lines += ["## Measured (median; lowest to highest round)", "", *numbers(run.results), ""]
    lines += ["## How each queue runs", "", *settings(run)]
    return "\n".join(lines) + "\n"


def steadiness(run: Run) -> Iterator[str]:
    """Durable figures are the disk's figures: say how steady it was."""
    bare = {"sqlite": "bare", "postgres": "bare-async"}.get(run.store)
    commits = Source("enqueue_lone", (bare,), "jobs_per_second").rounds(run.results) if bare else {}
    if commits:
        low, high = min(commits.values()), max(commits.values())
        remark = "; the disk was shared, read durable figures as ratios only" if high > 1.5 * low else ""
        yield f"- disk: {short(low)} to {short(high)} bare durable commits a second{remark}"


def targets(run: Run) -> Iterator[str]:
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


def failures(run: Run) -> Iterator[str]:
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


def settings(run: Run) -> Iterator[str]:
    yield "| queue | settings | when it forgets a job |"
    yield "|---|---|---|"
    measured = {queue for queues in run.results.values() for queue, rounds in queues.items() if any(rounds)}
    for queue in sorted(measured & ADAPTERS[run.store].keys()):
        adapter = load(run.store, queue)
        yield f"| {queue} | {adapter.settings} | {adapter.acknowledges} |"
    for queue, said in ceiling_settings():
        if queue in measured:
            yield f"| {queue} | {said} | not a queue |"


def ceiling_settings() -> Iterator[tuple[str, str]]:
    from benchmarks.measure.ceilings import SETTINGS

    yield from SETTINGS.items()
