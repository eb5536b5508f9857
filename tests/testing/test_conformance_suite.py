"""The conformance suite as the author of a store uses it: from another project."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TOY = """
    from tidemill.core.claims import SettleResult
    from tidemill.core.outcomes import WriteAnswer
    from tidemill.stores.memory import MemoryStore

    class ToyStore(MemoryStore):
        pass

    class YesMan(MemoryStore):
        async def settle(self, settlements, request=None):
            settled = await super().settle(settlements, request)
            return SettleResult([WriteAnswer.OK for _ in settled.answers], settled.claims)
"""

SUITE = """
    import pytest
    from tidemill.testing.conformance import *
    from toy import {store}

    @pytest.fixture
    def make_store(tmp_path):
        return lambda clock, entropy: {store}(clock=clock, entropy=entropy)

    @pytest.fixture
    def arrive():
        async def arrive(store, job, task, payload, options):
            store.arrive(job, task, payload, options)

        return arrive

    def test_of_the_authors_own():
        pass
"""


def run(project: pytest.Pytester, store: str, *arguments: str) -> pytest.RunResult:
    project.makepyfile(toy=TOY, test_toy=SUITE.format(store=store))
    project.makeini(
        "[pytest]\npythonpath = .\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function"
    )
    unused = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
    return project.runpytest_subprocess("--strict-markers", "-q", *unused, *arguments)


def test_a_store_that_keeps_its_promises_passes(pytester: pytest.Pytester) -> None:
    outcomes = run(pytester, "ToyStore", "-o", "asyncio_mode=strict").parseoutcomes()
    assert set(outcomes) == {"passed"}
    assert outcomes["passed"] > 300


def test_in_auto_mode_too(pytester: pytest.Pytester) -> None:
    """`tests/conformance` runs the whole suite in this mode; here another project has it."""
    outcomes = run(pytester, "ToyStore", "-o", "asyncio_mode=auto", "-k", "TestSettleAnswers").parseoutcomes()
    assert outcomes["passed"] > 10
    assert set(outcomes) == {"passed", "deselected"}


def test_a_failing_store_sees_the_compared_values(pytester: pytest.Pytester) -> None:
    result = run(pytester, "YesMan", "-k", "TestSettleAnswers")
    assert result.parseoutcomes()["failed"] > 0
    result.stdout.fnmatch_lines(["E * assert *OK*"])  # rewritten assertions show the compared values
