"""Every quota is used fully and never exceeded, as the provider's log shows.

`python -m tests.quotas` prints the figures of 30 seeds per account."""

from __future__ import annotations

import os

import pytest

from tests.quotas.backlog_drain import DrainResult, run_drain
from tests.quotas.drain_setups import SETUPS, DrainSetup, setup_for
from tests.quotas.fleet import MakeStore

SEEDS = int(os.environ.get("TIDEMILL_QUOTA_SEEDS", "2"))
"""30 in `make chaos`."""


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", SETUPS)
def test_i14_a_backlog_is_drained_as_fast_as_can_be_and_nothing_is_refused(name: str, seed: int) -> None:
    """Each account defines how much longer than the optimum it may take (`most`)."""
    setup = setup_for(name, seed)
    _check(setup, run_drain(setup, seed))


@pytest.mark.parametrize("name", ["openai", "concurrent", "rolling"])
def test_i14_on_other_stores_too(name: str, make_at_length: MakeStore) -> None:
    setup = setup_for(name, SEEDS)
    _check(setup, run_drain(setup, SEEDS, make_at_length))


def _check(setup: DrainSetup, figures: DrainResult) -> None:
    assert figures.refused == 0
    assert figures.lost == 0
    assert figures.duplicate_payments == 0
    assert figures.calls == setup.calls
    assert figures.ratio <= setup.most
