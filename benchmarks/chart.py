"""Draws the most compared figures as a bar chart; Tidemill's bars have a separate colour."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.targets import Results

WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 900, 150, 90, 16, 5, 34


@dataclass(frozen=True)
class Panel:
    title: str
    measurement: str
    figure: str
    unit: str
    more_is_better: bool = True


PANELS = (
    Panel("Drained by one process", "drain", "jobs_per_second", "jobs/s"),
    Panel("Drained by two processes", "drain_two", "jobs_per_second", "jobs/s"),
    Panel("Enqueued one by one", "enqueue_lone", "jobs_per_second", "jobs/s"),
    Panel("Enqueued by 64 at once", "enqueue_together", "jobs_per_second", "jobs/s"),
    Panel("Enqueued in bulk", "enqueue_bulk", "jobs_per_second", "jobs/s"),
    Panel("Enqueue to start, median (less is better)", "latency", "p50_ms", "ms", more_is_better=False),
    Panel("Chains of five steps ended", "chains", "chains_per_second", "chains/s"),
    Panel("A lone chain, median (less is better)", "lone_chain", "p50_ms", "ms", more_is_better=False),
    Panel("1 → 1 000 → 1 (less is better)", "fan_out", "seconds", "s", more_is_better=False),
    Panel("A ready job (less is better)", "footprint", "bytes_per_job", "bytes", more_is_better=False),
)

STYLE = """
    .card { fill: #ffffff; } text { fill: #1f2328; } .value { fill: #57606a; }
    .peer { fill: #9db4cc; } .own { fill: #0f766e; } .bare { fill: #d0d7de; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #1b1f27; } text { fill: #e6edf3; } .value { fill: #9aa4b2; }
      .peer { fill: #4a6078; } .own { fill: #2dd4bf; } .bare { fill: #3d444d; }
    }
"""


def chart(store: str, results: Results) -> str:
    drawn: list[str] = []
    top = 10
    for panel in PANELS:
        values = _medians(panel, results)
        if values:
            drawn += _panel(panel, values, top)
            top += HEAD + len(values) * (BAR + GAP) + 12
    return "\n".join([*_opening(store, top), *drawn, "</svg>"]) + "\n"


def _opening(store: str, height: int) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' aria-labelledby="title" font-family="system-ui, sans-serif" font-size="13">'
    )
    yield f'  <title id="title">Tidemill on {store}, beside its peers</title>'
    yield f"  <style>{STYLE}  </style>"
    yield f'  <rect class="card" width="{WIDTH}" height="{height}" rx="8"/>'


def _medians(panel: Panel, results: Results) -> dict[str, float]:
    """Returns the median of each queue, the best first."""
    values = {
        queue: statistics.median(figures[panel.figure] for figures in rounds if figures)
        for queue, rounds in results.get(panel.measurement, {}).items()
        if any(rounds)
    }
    ordered = sorted(values.items(), key=lambda item: item[1], reverse=panel.more_is_better)
    return dict(ordered)


def _panel(panel: Panel, values: dict[str, float], top: int) -> Iterator[str]:
    yield f'  <text x="16" y="{top + 20}" font-weight="600">{panel.title}</text>'
    longest = max(values.values()) or 1.0
    for number, (queue, value) in enumerate(values.items()):
        y = top + HEAD + number * (BAR + GAP)
        length = max(1.0, value / longest * (WIDTH - LEFT - RIGHT))
        kind = "own" if queue.startswith("tidemill") else "bare" if queue.startswith("bare") else "peer"
        said = f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
        yield f'  <text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{queue}</text>'
        yield f'  <rect class="{kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>'
        yield f'  <text class="value" x="{LEFT + length + 6:.1f}" y="{y + 13}">{said} {panel.unit}</text>'
