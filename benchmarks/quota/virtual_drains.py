"""The quota benchmark in virtual time, where the machine's speed does not matter: many seeds, whole days.

The drains are those of `tests/quotas`, which defines the accounts and their random parameters."""

from __future__ import annotations

from collections.abc import Iterator

from tests.quotas.backlog_drain import DrainResult, run_drain
from tests.quotas.drain_setups import SETUPS, setup_for

from tidemill import logs


def table(seeds: int) -> Iterator[str]:
    logs.configure(level="error")
    yield "| account | seeds | calls | lost | 429s | double payments | T/T_opt, mean | worst | allowed |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in SETUPS if seeds else ():
        runs = [run_drain(setup_for(name, seed), seed) for seed in range(seeds)]
        yield f"| {setup_for(name, 0).name} | {seeds} | {_row(runs)} | {setup_for(name, 0).most:.2f} |"


def _row(runs: list[DrainResult]) -> str:
    ratios = [run.ratio for run in runs]
    counts = [sum(getattr(run, name) for run in runs) for name in ("calls", "lost", "refused", "paid_again")]
    told = " | ".join(f"{count:,}" for count in counts)
    return f"{told} | {sum(ratios) / len(ratios):.3f} | {max(ratios):.3f}"
