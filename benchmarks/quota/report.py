"""The result table, with the versions and the machine."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.quota.contenders import CONTENDERS
from benchmarks.quota.results import QuotaResult

Results = dict[str, dict[str, QuotaResult]]
"""Results by dialect, then by contender."""


def markdown(results: Results, machine: dict[str, str], virtual: list[str]) -> str:
    facts = [f"- {name}: {value}" for name, value in machine.items()]
    lines = ["# Quotas kept", "", *facts, "", "## Over HTTP", "", *table(results), "", *_settings(results)]
    return "\n".join([*lines, "", "## Tidemill in virtual time", "", *virtual]) + "\n"


def table(results: Results) -> Iterator[str]:
    yield "| provider | | drained | 429s | double payments | T | T/T_opt |"
    yield "|---|---|---|---|---|---|---|"
    for dialect, contenders in results.items():
        for name, one in contenders.items():
            yield f"| {dialect} | {name} | {row(one)} |"


def row(one: QuotaResult) -> str:
    time = "-" if one.seconds is None else f"{one.seconds:,.0f} s"
    ratio = "-" if one.ratio is None else f"{one.ratio:.2f}"
    return f"{one.drained} of {one.jobs} | {one.refused:,} | {one.paid_twice} | {time} | {ratio}"


def _settings(results: Results) -> Iterator[str]:
    yield "How each runs:"
    yield ""
    for contender in CONTENDERS:
        if any(contender.name in contenders for contenders in results.values()):
            yield f"- **{contender.name}**: {contender.settings}."
