"""Prints the figures of every drain: `python -m tests.quotas [--seeds 30] [--store memory|sqlite] [name
…]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.quotas.backlog_drain import DrainResult, run_drain
from tests.quotas.drain_setups import SETUPS, setup_for
from tests.quotas.fleet import in_memory
from tests.quotas.virtual_stores import create_sqlite
from tidemill import logs

HEAD = (
    f"{'account':24} {'seeds':>5} {'calls':>7} {'lost':>5} {'429':>5} {'paid twice':>10} "
    f"{'T/T_opt mean':>13} {'worst':>7} {'allowed':>8}"
)


def main() -> None:
    read = argparse.ArgumentParser(prog="python -m tests.quotas", description=__doc__)
    read.add_argument("names", nargs="*", help=f"any of {', '.join(SETUPS)}; all by default")
    read.add_argument("--seeds", type=int, default=30)
    read.add_argument("--store", choices=["memory", "sqlite"], default="memory")
    arguments = read.parse_args()
    logs.configure(level="error")
    print(HEAD)
    for name in arguments.names or SETUPS:
        figures = [_figures(name, seed, arguments.store) for seed in range(arguments.seeds)]
        first = setup_for(name, 0)
        ratios = [one.ratio for one in figures]
        print(
            f"{first.name:24} {len(figures):5} {sum(one.calls for one in figures):7} "
            f"{sum(one.lost for one in figures):5} {sum(one.refused for one in figures):5} "
            f"{sum(one.duplicate_payments for one in figures):10} {sum(ratios) / len(ratios):13.4f} "
            f"{max(ratios):7.4f} {first.most:8.2f}",
            flush=True,
        )


def _figures(name: str, seed: int, store: str) -> DrainResult:
    setup = setup_for(name, seed)
    if store == "memory":
        return run_drain(setup, seed, in_memory)
    with tempfile.TemporaryDirectory() as folder:
        return run_drain(setup, seed, create_sqlite(Path(folder)))


if __name__ == "__main__":
    main()
