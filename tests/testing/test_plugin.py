"""The pytest plugin, alone and together with other plugins for async tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

SHOP = """
    import asyncio
    from tidemill import Context, Retry, Tidemill
    app = Tidemill("sqlite:////nowhere/that/exists/jobs.db")

    @app.task(name="receipt", retry=Retry(attempts=2, first=3600, jitter=0))
    async def receipt(ctx: Context, order: int) -> int:
        await asyncio.sleep(600)
        if ctx.attempt == 1:
            raise OSError("down")
        return order
"""

TESTS = """
    import asyncio
    import pytest
    from tidemill import testing
    from shop import app, receipt

    def is_virtual():
        return isinstance(asyncio.get_running_loop(), testing.VirtualLoop)

    @pytest.mark.tidemill
    async def test_marked(tmp_path):
        assert is_virtual() and tmp_path.exists()
        async with testing.kit(app) as kit:
            job = await receipt.enqueue(7)
            await kit.run_for(2 * 3600)
            assert kit.result(job) == 7

    @pytest.mark.tidemill
    async def test_kit_from_the_fixture(tidemill_kit):
        job = await receipt.enqueue(7)
        await tidemill_kit.run_for(2 * 3600)
        assert tidemill_kit.result(job) == 7

    @pytest.mark.tidemill(seed=3, start=1_000_000_000)
    async def test_seeded(tidemill_kit):
        assert tidemill_kit.now == 1_000_000_000
        await asyncio.sleep(3600)
        assert tidemill_kit.now == 1_000_003_600

    @pytest.mark.tidemill
    @pytest.mark.parametrize("number", [1, 2])
    async def test_parametrised(number):
        await asyncio.sleep(86_400 * number)
        assert is_virtual()

    @pytest.mark.tidemill
    class TestInAClass:
        async def test_method(self, tidemill_kit):
            assert is_virtual() and type(self) is TestInAClass

        def test_plain(self, tidemill_kit):
            receipt.enqueue_sync(7)
            tidemill_kit.run_for(2 * 3600)
            assert [job.state for job in tidemill_kit.enqueued()] == ["done"]

    @pytest.mark.tidemill
    @pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
    async def test_other_marks_hold():
        await asyncio.sleep(60)
        1 / 0
"""
PASSED = 7

NOBODYS = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
"""Disables plugins that no test here needs; the second one takes half of pytest's start time."""

WITH = {
    "plain pytest": ("-p", "no:asyncio", "-p", "no:anyio"),
    "pytest-asyncio strict": ("-p", "no:anyio", "-o", "asyncio_mode=strict"),
    "pytest-asyncio auto": ("-p", "no:anyio", "-o", "asyncio_mode=auto"),
    "anyio": ("-p", "no:asyncio"),
    "anyio auto": ("-p", "no:asyncio", "-o", "anyio_mode=auto"),
    "both": ("-o", "asyncio_mode=auto"),
}


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(shop=SHOP)
    pytester.makeini("[pytest]\ntidemill_app = shop:app\npythonpath = .\nfilterwarnings = error")
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    plugin = () if "tidemill_pytest" in _installed() else ("-p", "tidemill_pytest")
    scope = () if "no:asyncio" in arguments else ("-o", "asyncio_default_fixture_loop_scope=function")
    return project.runpytest_subprocess("--strict-markers", *NOBODYS, *plugin, *scope, *arguments)


def _installed() -> set[str]:
    from importlib.metadata import entry_points

    return {point.module for point in entry_points(group="pytest11")}


@pytest.mark.parametrize("arguments", WITH.values(), ids=WITH.keys())
def test_marked_tests_run_in_virtual_time(project: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    project.makepyfile(TESTS)
    result = run(project, *arguments)
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] >= PASSED, "in its auto mode anyio repeats async tests for each back end"
    assert set(outcomes) == {"passed", "xfailed"}


def test_unmarked_async_tests_stay_with_their_plugin(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import asyncio
        from tidemill import testing

        async def test_ordinary_loop(tidemill_kit):
            assert not isinstance(asyncio.get_running_loop(), testing.VirtualLoop)
            assert type(tidemill_kit) is testing.AsyncKit
    """)
    run(project, "-p", "no:anyio", "-o", "asyncio_mode=auto").assert_outcomes(passed=1)


def test_a_whole_module_is_marked_and_hypothesis_draws(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import asyncio
        import pytest
        from hypothesis import given, settings, strategies
        from tidemill import testing

        pytestmark = pytest.mark.tidemill

        @settings(max_examples=5, database=None)
        @given(strategies.integers(1, 1000))
        async def test_drawn(hours):
            loop = asyncio.get_running_loop()
            await asyncio.sleep(3600 * hours)
            assert loop.time() == 3600 * hours

        def test_plain():
            pass
    """)
    for arguments in (WITH["plain pytest"], WITH["pytest-asyncio auto"]):
        run(project, *arguments).assert_outcomes(passed=2)


def test_a_module_may_import_proxies_that_raise_when_asked(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import pytest
        from flask import current_app, request

        @pytest.mark.tidemill
        async def test_fine():
            pass
    """)
    run(project, *WITH["plain pytest"]).assert_outcomes(passed=1)


def test_a_failure_points_at_the_line(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import pytest

        @pytest.mark.tidemill
        async def test_fails():
            found = 41
            assert found == 42
    """)
    result = run(project, *WITH["plain pytest"])
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert found == 42*", "E*assert 41 == 42"])


def test_inline_is_a_fixture(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import pytest
        from tidemill import Tidemill

        @pytest.fixture
        def tidemill_app():
            return Tidemill("memory://")

        def test_inline(tidemill_app, tidemill_inline):
            ran = []

            @tidemill_app.task(name="note")
            def note() -> None:
                ran.append(1)

            note.enqueue_sync()
            assert ran == [1]
    """)
    run(project, *WITH["plain pytest"]).assert_outcomes(passed=1)


def test_without_an_application_the_fixture_says_what_to_write(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(tidemill_kit): pass")
    result = run(pytester, *WITH["plain pytest"])
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*tidemill_app: '' names no application; write tidemill_app = module:app*"])


def test_an_argument_without_a_name_is_refused(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import pytest

        @pytest.mark.tidemill(7)
        async def test_seeded(): pass
    """)
    result = run(project, *WITH["plain pytest"])
    assert result.ret is pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_seeded: tidemill(7): its arguments have names*tidemill(seed=7)"])


def test_a_mark_on_an_async_test_of_unittest_is_refused(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import unittest
        import pytest

        @pytest.mark.tidemill
        class TestOfUnittest(unittest.IsolatedAsyncioTestCase):
            async def test_async(self): pass
    """)
    result = run(project, *WITH["plain pytest"])
    assert result.ret is pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*TestOfUnittest::test_async: unittest runs*write the test as a function"])


def test_the_plugin_imports_nothing_of_tidemill_until_it_is_used() -> None:
    """Every test run on a machine with Tidemill installed loads the plugin."""
    script = (
        "import sys, tidemill_pytest; sys.exit(any(m.partition('.')[0] == 'tidemill' for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
