"""The conformance suite: the tests that every store must pass.

The author of a store writes one test module::

    import pytest
    from tidemill.testing.conformance import *

    @pytest.fixture
    def make_store(tmp_path):
        return lambda clock, entropy: MyStore(tmp_path / "jobs", clock=clock, entropy=entropy)

    @pytest.fixture
    def arrive():
        async def arrive(store, job, task, payload, options):
            ...  # write an arrival the way another program would
        return arrive

`make_store` returns a function that creates a new, empty store that is not open yet. `arrive` returns a
function that writes an arrival into the store. The suite needs pytest-asyncio, in strict or auto mode.

The test names cite the numbered obligations of `tidemill.contract` (J, Q, P, K, F, R, C, W, S, U) and the
invariants of the project (I).

`lockstep` is a second suite. It runs random calls on the store and on the memory store and compares the
answers.
"""

import inspect

import pytest

_TEST_MODULES = (
    "advance",
    "amend",
    "arrivals",
    "batch_calls",
    "batches",
    "blocked_lanes",
    "breaker",
    "checkpoints",
    "claim",
    "claim_order",
    "deferred_units",
    "documents",
    "fixtures",
    "insert",
    "key_overrides",
    "late_calls",
    "learned_spacings",
    "leases",
    "maintenance",
    "pool_statistics",
    "pool_settings",
    "pool_waits",
    "prune",
    "queues",
    "reader",
    "refusals",
    "reservations",
    "search",
    "settle",
    "store_copy",
    "unique_keys",
    "usage",
    "wakeups",
    "worklist",
)
# Registered before the imports, so that a failed assertion shows the compared values.
pytest.register_assert_rewrite(*(f"{__name__}.{topic}" for topic in _TEST_MODULES))

from tidemill.testing.conformance.administration import TestLeadership, TestMaintenance, TestStoreHandles
from tidemill.testing.conformance.advance import TestAdvance
from tidemill.testing.conformance.amend import TestAmend
from tidemill.testing.conformance.arrivals import TestAdmit
from tidemill.testing.conformance.batch_calls import TestBatchCalls, TestReclaimedBatchCalls
from tidemill.testing.conformance.batches import (
    TestBatchMembers,
    TestBatchReadiness,
    TestBatchSplits,
    batch_starts,
)
from tidemill.testing.conformance.blocked_lanes import TestBlockedLanes
from tidemill.testing.conformance.breaker import TestEstimatedLimit, TestProbe
from tidemill.testing.conformance.checkpoints import TestBeginStep, TestCheckpointLifetime, TestKeepStep
from tidemill.testing.conformance.claim import (
    TestClaim,
    TestClaimByIds,
    TestClaimLimits,
    TestClaimPause,
    TestJobExpiry,
    TestRepeatedClaim,
)
from tidemill.testing.conformance.claim_order import (
    TestBacklog,
    TestClaimOrder,
    TestJobPosition,
    TestLanes,
    TestQueueShares,
)
from tidemill.testing.conformance.deferred_units import TestDeferredUnits
from tidemill.testing.conformance.documents import TestFindDocuments
from tidemill.testing.conformance.fixtures import clock, driver, entropy, store
from tidemill.testing.conformance.insert import TestInsert, TestKnownIds
from tidemill.testing.conformance.key_overrides import TestKeyOverrides
from tidemill.testing.conformance.late_calls import TestLateCalls
from tidemill.testing.conformance.learned_spacings import TestLearnedSpacing
from tidemill.testing.conformance.leases import TestClockJumps, TestHeartbeat, TestReclaim
from tidemill.testing.conformance.pool_settings import (
    TestManualClosure,
    TestPoolDeclarations,
    TestPoolOverrides,
    TestPoolViews,
)
from tidemill.testing.conformance.pool_statistics import TestPoolAccounts, TestPoolDemand, TestPoolHistory
from tidemill.testing.conformance.pool_waits import (
    TestOversizedJobs,
    TestPoolWaits,
    TestPoolWakeups,
    account_requests,
)
from tidemill.testing.conformance.prune import TestFlowRetention, TestPrune
from tidemill.testing.conformance.queues import TestOverrideExpiry, TestQueueOverrides, TestQueueSettings
from tidemill.testing.conformance.reader import (
    TestAttempts,
    TestCounts,
    TestFind,
    TestLogs,
    TestQueueHistory,
    TestScanLimit,
    TestWorkers,
)
from tidemill.testing.conformance.refusals import (
    TestClaimWait,
    TestConsecutiveRefusals,
    TestOverloads,
    TestRefusals,
)
from tidemill.testing.conformance.reservations import TestMeteredClaim, TestMeteredLanes, TestReserve
from tidemill.testing.conformance.search import (
    TestFieldSearch,
    TestInvalidFilters,
    TestMatchEquivalence,
    TestTextSearch,
    TestTimeFilters,
)
from tidemill.testing.conformance.settle import TestSettleAnswers, TestSettleOutcomes
from tidemill.testing.conformance.store_copy import TestStoreCopy
from tidemill.testing.conformance.unique_keys import (
    TestUniqueMerge,
    TestUniquePeriod,
    TestUniqueReplace,
    TestUniqueRerun,
    TestUniqueSkip,
)
from tidemill.testing.conformance.usage import (
    TestObservations,
    TestStaleUsage,
    TestUnitConservation,
    TestUsage,
)
from tidemill.testing.conformance.wakeups import TestListener, TestWakeups
from tidemill.testing.conformance.worklist import TestDocumentWakeups, TestWorklist

__all__ = [
    "TestAdmit",
    "TestAdvance",
    "TestAmend",
    "TestAttempts",
    "TestBacklog",
    "TestBatchCalls",
    "TestBatchMembers",
    "TestBatchReadiness",
    "TestBatchSplits",
    "TestBeginStep",
    "TestBlockedLanes",
    "TestCheckpointLifetime",
    "TestClaim",
    "TestClaimByIds",
    "TestClaimLimits",
    "TestClaimOrder",
    "TestClaimPause",
    "TestClaimWait",
    "TestClockJumps",
    "TestConsecutiveRefusals",
    "TestCounts",
    "TestDeferredUnits",
    "TestDocumentWakeups",
    "TestEstimatedLimit",
    "TestFieldSearch",
    "TestFind",
    "TestFindDocuments",
    "TestFlowRetention",
    "TestHeartbeat",
    "TestInsert",
    "TestInvalidFilters",
    "TestJobExpiry",
    "TestJobPosition",
    "TestKeepStep",
    "TestKeyOverrides",
    "TestKnownIds",
    "TestLanes",
    "TestLateCalls",
    "TestLeadership",
    "TestLearnedSpacing",
    "TestListener",
    "TestLogs",
    "TestMaintenance",
    "TestManualClosure",
    "TestMatchEquivalence",
    "TestMeteredClaim",
    "TestMeteredLanes",
    "TestObservations",
    "TestOverloads",
    "TestOverrideExpiry",
    "TestOversizedJobs",
    "TestPoolAccounts",
    "TestPoolDeclarations",
    "TestPoolDemand",
    "TestPoolHistory",
    "TestPoolOverrides",
    "TestPoolViews",
    "TestPoolWaits",
    "TestPoolWakeups",
    "TestProbe",
    "TestPrune",
    "TestQueueHistory",
    "TestQueueOverrides",
    "TestQueueSettings",
    "TestQueueShares",
    "TestReclaim",
    "TestReclaimedBatchCalls",
    "TestRefusals",
    "TestRepeatedClaim",
    "TestReserve",
    "TestScanLimit",
    "TestSettleAnswers",
    "TestSettleOutcomes",
    "TestStaleUsage",
    "TestStoreCopy",
    "TestStoreHandles",
    "TestTextSearch",
    "TestTimeFilters",
    "TestUniqueMerge",
    "TestUniquePeriod",
    "TestUniqueReplace",
    "TestUniqueRerun",
    "TestUniqueSkip",
    "TestUnitConservation",
    "TestUsage",
    "TestWakeups",
    "TestWorkers",
    "TestWorklist",
    "account_requests",
    "batch_starts",
    "clock",
    "driver",
    "entropy",
    "store",
]

for _suite in [globals()[name] for name in __all__ if name.startswith("Test")]:
    for _test in vars(_suite).values():
        if inspect.iscoroutinefunction(_test):
            pytest.mark.asyncio(_test)  # strict mode of pytest-asyncio runs only marked tests
