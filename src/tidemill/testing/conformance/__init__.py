"""The suite every store passes.

A store's author writes one test module::

    import pytest
    from tidemill.testing.conformance import *

    @pytest.fixture
    def make_store(tmp_path):
        return lambda clock, entropy: MyStore(tmp_path / "jobs", clock=clock, entropy=entropy)

    @pytest.fixture
    def arrive():
        async def arrive(store, job, task, payload, options):
            ...  # write a request the way an outsider would
        return arrive

`make_store` gives a new, empty store that is not opened yet and reads the clock it is handed.
The test names cite the obligations of `tidemill.contract` (J, Q, P, K, F, R, C, W, S, U) and the project's
invariants (I). It runs with pytest-asyncio, in whatever mode.

`lockstep` holds the second half: a state machine that drives the store side by side with
the memory store; see there.
"""

import inspect

import pytest

_TOPICS = (
    "advancing",
    "amending",
    "arriving",
    "awaiting",
    "backlog",
    "batching",
    "calling",
    "checkpointing",
    "claiming",
    "closing",
    "copying",
    "course_finding",
    "courses",
    "declaring",
    "demanding",
    "departures",
    "driver",
    "flow_keeping",
    "inserting",
    "leasing",
    "looking_on",
    "ordering",
    "overriding",
    "pool_minutes",
    "pooling",
    "reading",
    "searching",
    "settling",
    "shutting",
    "spending",
    "steering",
    "stirring",
    "uniqueness",
    "upkeep",
    "waiting",
    "waking",
)
# Before they are imported, or a failed assertion would not say what it compared.
pytest.register_assert_rewrite(*(f"{__name__}.{topic}" for topic in _TOPICS))

from tidemill.testing.conformance.advancing import TestAdvance  # noqa: E402 - see above
from tidemill.testing.conformance.amending import TestAmend, TestPrune  # noqa: E402
from tidemill.testing.conformance.arriving import TestAdmit  # noqa: E402
from tidemill.testing.conformance.awaiting import TestAwaiting  # noqa: E402
from tidemill.testing.conformance.backlog import TestAhead, TestBacklog  # noqa: E402
from tidemill.testing.conformance.batching import (  # noqa: E402
    TestCompany,
    TestRipeness,
    TestSplits,
    looked,
)
from tidemill.testing.conformance.calling import TestCalls, TestLostCalls  # noqa: E402
from tidemill.testing.conformance.checkpointing import TestBegun, TestKept, TestSteps  # noqa: E402
from tidemill.testing.conformance.claiming import (  # noqa: E402
    TestClaim,
    TestClaimByIds,
    TestExpiry,
    TestLimits,
    TestPause,
    TestRepeatedClaim,
)
from tidemill.testing.conformance.closing import (  # noqa: E402
    TestGuesses,
    TestOverloads,
    TestProbe,
    TestRefusals,
    TestReportedRefusals,
    TestWaits,
)
from tidemill.testing.conformance.copying import TestCopies  # noqa: E402
from tidemill.testing.conformance.course_finding import TestFindCourses  # noqa: E402
from tidemill.testing.conformance.declaring import (  # noqa: E402
    TestClosedByHand,
    TestDeclaredPools,
    TestPoolOverrides,
    TestPoolViews,
)
from tidemill.testing.conformance.demanding import TestAccounts, TestDemand  # noqa: E402
from tidemill.testing.conformance.departures import TestDepartures  # noqa: E402
from tidemill.testing.conformance.fixtures import clock, drive, entropy, store  # noqa: E402
from tidemill.testing.conformance.flow_keeping import TestKeptFlows  # noqa: E402
from tidemill.testing.conformance.inserting import TestInsert, TestRememberedIds  # noqa: E402
from tidemill.testing.conformance.leasing import TestClocks, TestHeartbeat, TestReclaim  # noqa: E402
from tidemill.testing.conformance.looking_on import (  # noqa: E402
    TestLooks,
)
from tidemill.testing.conformance.ordering import TestLanes, TestOrder, TestShares  # noqa: E402
from tidemill.testing.conformance.overriding import TestOverrideEnds, TestOverrides  # noqa: E402
from tidemill.testing.conformance.pool_minutes import TestPoolHistory  # noqa: E402
from tidemill.testing.conformance.pooling import (  # noqa: E402
    TestPooledClaim,
    TestPooledLanes,
    TestReserve,
)
from tidemill.testing.conformance.reading import (  # noqa: E402
    TestAttempts,
    TestCounts,
    TestFind,
    TestHistory,
    TestLogs,
    TestWorkers,
)
from tidemill.testing.conformance.searching import (  # noqa: E402
    TestFields,
    TestFilters,
    TestText,
    TestTimes,
    TestWhatMatches,
)
from tidemill.testing.conformance.settling import TestAnswers, TestOutcomes  # noqa: E402
from tidemill.testing.conformance.shutting import TestShutLanes  # noqa: E402
from tidemill.testing.conformance.spending import (  # noqa: E402
    TestConservation,
    TestLostHolders,
    TestObservations,
    TestSpent,
)
from tidemill.testing.conformance.steering import TestCoordinator, TestHandles, TestQueues  # noqa: E402
from tidemill.testing.conformance.stirring import TestAgenda, TestCourseRings  # noqa: E402
from tidemill.testing.conformance.uniqueness import (  # noqa: E402
    TestMerge,
    TestPeriod,
    TestReplace,
    TestRerun,
    TestSkip,
)
from tidemill.testing.conformance.upkeep import TestUpkeep  # noqa: E402
from tidemill.testing.conformance.waiting import (  # noqa: E402
    TestPoolRings,
    TestTooLarge,
    TestWaitingForPools,
    asked,
)
from tidemill.testing.conformance.waking import TestListener, TestRings  # noqa: E402

__all__ = [
    "TestAccounts",
    "TestAdmit",
    "TestAdvance",
    "TestAgenda",
    "TestAhead",
    "TestAmend",
    "TestAnswers",
    "TestAttempts",
    "TestAwaiting",
    "TestBacklog",
    "TestBegun",
    "TestCalls",
    "TestClaim",
    "TestClaimByIds",
    "TestClocks",
    "TestClosedByHand",
    "TestCompany",
    "TestConservation",
    "TestCoordinator",
    "TestCopies",
    "TestCounts",
    "TestCourseRings",
    "TestDeclaredPools",
    "TestDemand",
    "TestDepartures",
    "TestExpiry",
    "TestFields",
    "TestFilters",
    "TestFind",
    "TestFindCourses",
    "TestGuesses",
    "TestHandles",
    "TestHeartbeat",
    "TestHistory",
    "TestInsert",
    "TestKept",
    "TestKeptFlows",
    "TestLanes",
    "TestLimits",
    "TestListener",
    "TestLogs",
    "TestLooks",
    "TestLostCalls",
    "TestLostHolders",
    "TestMerge",
    "TestObservations",
    "TestOrder",
    "TestOutcomes",
    "TestOverloads",
    "TestOverrideEnds",
    "TestOverrides",
    "TestPause",
    "TestPeriod",
    "TestPoolHistory",
    "TestPoolOverrides",
    "TestPoolRings",
    "TestPoolViews",
    "TestPooledClaim",
    "TestPooledLanes",
    "TestProbe",
    "TestPrune",
    "TestQueues",
    "TestReclaim",
    "TestRefusals",
    "TestRememberedIds",
    "TestRepeatedClaim",
    "TestReplace",
    "TestReportedRefusals",
    "TestRerun",
    "TestReserve",
    "TestRings",
    "TestRipeness",
    "TestShares",
    "TestShutLanes",
    "TestSkip",
    "TestSpent",
    "TestSplits",
    "TestSteps",
    "TestText",
    "TestTimes",
    "TestTooLarge",
    "TestUpkeep",
    "TestWaitingForPools",
    "TestWaits",
    "TestWhatMatches",
    "TestWorkers",
    "asked",
    "clock",
    "drive",
    "entropy",
    "looked",
    "store",
]

for _suite in [globals()[name] for name in __all__ if name.startswith("Test")]:
    for _test in vars(_suite).values():
        if inspect.iscoroutinefunction(_test):
            pytest.mark.asyncio(_test)  # in its strict mode pytest-asyncio runs only what asks for it
