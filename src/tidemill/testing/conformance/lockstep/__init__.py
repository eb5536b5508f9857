"""A state machine that drives a store side by side with the memory store.

Both are told the same, under one clock and with the same randomness; every answer and, after
every step, everything a reader can see must be equal. A store's author writes::

    def test_lockstep(tmp_path_factory):
        run_lockstep(lambda clock, entropy: MyStore(tmp_path_factory.mktemp("jobs"), ...), arrive)

`TIDEMILL_LOCKSTEP_EXAMPLES` and `TIDEMILL_LOCKSTEP_STEPS` ask for longer runs than 40 histories
of 50 steps.
A failure prints the shortest history that shows it, and how to replay it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep.batches import Batches
from tidemill.testing.conformance.lockstep.courses import Courses
from tidemill.testing.conformance.lockstep.incoming import arrive_in_memory
from tidemill.testing.conformance.lockstep.meters import Meters
from tidemill.testing.conformance.lockstep.pair import DIFFERS
from tidemill.testing.conformance.lockstep.people import People
from tidemill.testing.conformance.lockstep.readers import Readers
from tidemill.testing.conformance.lockstep.steps import Steps
from tidemill.testing.conformance.lockstep.successors import Successors

__all__ = ["DIFFERS", "SETTINGS", "Lockstep", "arrive_in_memory", "run_lockstep"]

EXAMPLES = int(os.environ.get("TIDEMILL_LOCKSTEP_EXAMPLES", "40"))
STEPS = int(os.environ.get("TIDEMILL_LOCKSTEP_STEPS", "50"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


class Lockstep(Batches, Courses, Successors, Meters, Steps, People, Readers):
    """All rules on one pair of stores."""


def run_lockstep(
    make_store: MakeStore, arrive: Arrive, using: settings = SETTINGS, *, drawn_from: int | None = None
) -> None:
    """Raises AssertionError with the shortest history in which the store differs from the model.

    `make_store` is called once per history and must give an empty store each time. The same histories are
    drawn from the same seed, `drawn_from`."""

    class Machine(Lockstep):
        def __init__(self) -> None:
            super().__init__(make_store, arrive)

    run_state_machine_as_test(Machine if drawn_from is None else seed(drawn_from)(Machine), settings=using)
