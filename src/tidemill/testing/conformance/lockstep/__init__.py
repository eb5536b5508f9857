"""A random test that runs a store in lockstep with the memory store.

Both stores get the same calls, with one clock and the same random numbers. All answers, and everything that a
reader can see, must be equal. The author of a store writes::

    def test_lockstep(tmp_path_factory):
        run_lockstep(lambda clock, entropy: MyStore(tmp_path_factory.mktemp("jobs"), ...), arrive)

The default is 40 histories of 50 steps. `TIDEMILL_LOCKSTEP_EXAMPLES` and `TIDEMILL_LOCKSTEP_STEPS` set longer
runs. A failure prints the shortest history that shows the difference, and how to replay it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep.document_rules import DocumentRules
from tidemill.testing.conformance.lockstep.job_rules import (
    BatchRules,
    CheckpointRules,
    SuccessorRules,
    arrive_in_memory,
)
from tidemill.testing.conformance.lockstep.operator_rules import OperatorRules, PoolRules
from tidemill.testing.conformance.lockstep.store_pair import DIFFERENCE_MESSAGE, ReadRules

__all__ = ["DIFFERENCE_MESSAGE", "LOCKSTEP_SETTINGS", "Lockstep", "arrive_in_memory", "run_lockstep"]

MAX_EXAMPLES = int(os.environ.get("TIDEMILL_LOCKSTEP_EXAMPLES", "40"))
STEPS_PER_EXAMPLE = int(os.environ.get("TIDEMILL_LOCKSTEP_STEPS", "50"))
LOCKSTEP_SETTINGS = settings(
    max_examples=MAX_EXAMPLES,
    stateful_step_count=STEPS_PER_EXAMPLE,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


class Lockstep(
    BatchRules, DocumentRules, SuccessorRules, PoolRules, CheckpointRules, OperatorRules, ReadRules
):
    """The Hypothesis state machine that has all lockstep rules. It runs them on one pair of stores."""


def run_lockstep(
    make_store: MakeStore,
    arrive: Arrive,
    using: settings = LOCKSTEP_SETTINGS,
    *,
    drawn_from: int | None = None,
) -> None:
    """Runs random histories on the store and the memory store. Raises AssertionError with the shortest
    history in which they differ.

    - `make_store`: called once per history; must return an empty store each time.
    - `arrive`: writes an arrival into the store.
    - `using`: the Hypothesis settings.
    - `drawn_from`: the random seed.
    """

    class Machine(Lockstep):
        def __init__(self) -> None:
            super().__init__(make_store, arrive)

    run_state_machine_as_test(Machine if drawn_from is None else seed(drawn_from)(Machine), settings=using)
