"""The same promises in virtual time, where a machine's milliseconds count nothing: many seeds, whole days.

The drains are the ones that the tests hold: `tests/quotas` says what each account is and draws."""

from __future__ import annotations

from collections.abc import Iterator

from tests.quotas.draining import Figures, drained
from tests.quotas.setups import SETUPS, setup_for

from tidemill import logs


def table(seeds: int) -> Iterator[str]:
    logs.configure(level="error")
    yield "| account | seeds | calls | lost | 429s | double payments | T/T_opt, mean | worst | allowed |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in SETUPS if seeds else ():
        runs = [drained(setup_for(name, seed), seed) for seed in range(seeds)]
        yield f"| {setup_for(name, 0).name} | {seeds} | {_row(runs)} | {setup_for(name, 0).most:.2f} |"


def _row(runs: list[Figures]) -> str:
    ratios = [run.ratio for run in runs]
    counts = [sum(getattr(run, name) for run in runs) for name in ("calls", "lost", "refused", "paid_again")]
    told = " | ".join(f"{count:,}" for count in counts)
    return f"{told} | {sum(ratios) / len(ratios):.3f} | {max(ratios):.3f}"
