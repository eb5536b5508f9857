"""`--seed=N` replays one history and prints its trace; TIDEMILL_HISTORIES sets the number of histories."""

from __future__ import annotations

import os

import pytest

PER_TEST = 25


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="replay this one simulated history")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("seed", default=None) is not None:
        items[:] = [item for item in items if "seeds" in getattr(item, "fixturenames", ())]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" not in metafunc.fixturenames:
        return
    share = getattr(metafunc.module, "SHARE", 1)
    seed: int | None = metafunc.config.getoption("seed", default=None)
    if seed is not None:
        metafunc.parametrize("seeds", [range(seed, seed + 1)], ids=[str(seed)])
        return
    count = int(os.environ.get("TIDEMILL_HISTORIES", "600")) // share
    chunks = [range(start, min(start + PER_TEST, count)) for start in range(0, count, PER_TEST)]
    metafunc.parametrize("seeds", chunks, ids=[f"{chunk.start}-{chunk.stop - 1}" for chunk in chunks])
