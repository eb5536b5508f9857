"""Removes one safety check at a time: the simulator detects every mutant, by its invariant."""

from __future__ import annotations

import pytest

from tests.simulation.faults import PROFILES
from tests.simulation.history import run_history
from tests.simulation.mutants import MUTANTS, Mutant

AT_MOST = 150
"""Histories within which a mutant must be detected; most are within the first five."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_mutant_is_caught(mutant: Mutant) -> None:
    profile = next(profile for profile in PROFILES if profile.name == mutant.profile)
    with mutant.apply():
        for seed in range(AT_MOST):
            violation = run_history(seed, profile).violation
            if violation is not None:
                assert violation.number in mutant.caught_by, str(violation)
                return
    pytest.fail(f"{mutant.name!r} survived {AT_MOST} histories")
