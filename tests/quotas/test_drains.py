"""Every quota full and never over, with the provider as the witness. `python -m tests.quotas` prints the
figures of 30 seeds per account."""

from __future__ import annotations

import os

import pytest

from tests.quotas.draining import Figures, drained
from tests.quotas.fleet import MakeStore
from tests.quotas.setups import SETUPS, Setup, setup_for

SEEDS = int(os.environ.get("TIDEMILL_QUOTA_SEEDS", "2"))
"""30 in `make chaos`."""


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", SETUPS)
def test_i14_a_backlog_is_drained_as_fast_as_can_be_and_nothing_is_refused(name: str, seed: int) -> None:
    """Each account says by how much it may take longer than the best there is (`Setup.most`)."""
    setup = setup_for(name, seed)
    _check(setup, drained(setup, seed))


@pytest.mark.parametrize("name", ["openai", "concurrent", "rolling"])
def test_i14_on_other_stores_too(name: str, make_at_length: MakeStore) -> None:
    setup = setup_for(name, SEEDS)
    _check(setup, drained(setup, SEEDS, make_at_length))


def _check(setup: Setup, figures: Figures) -> None:
    assert figures.refused == 0
    assert figures.lost == 0
    assert figures.paid_again == 0
    assert figures.calls == setup.calls
    assert figures.ratio <= setup.most
