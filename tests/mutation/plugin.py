"""The pytest plugins of a mutation run: one records the lines of each test, one selects and orders tests."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

# After this many calls in one test, a function has shown its lines; further tracing costs too much.
TRACED_ENTRIES = 50
# These tests start separate servers, which takes too long for a mutant.
SERVER_FIXTURES = ("redis", "postgres")


def register_profile() -> None:
    """Registers a Hypothesis profile: one failing example is enough, without shrinking and without a
    deadline."""
    settings.register_profile(
        "mutation",
        phases=(Phase.explicit, Phase.generate),
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutation")


def needs_server(item: pytest.Item) -> bool:
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return any(name.startswith(SERVER_FIXTURES) for name in names)


class Selection:
    """Runs only the named tests, in the order of the names."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._ranks = {name: rank for rank, name in enumerate(wanted)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._ranks), key=lambda item: self._ranks[item.nodeid]
        )


class LineRecord:
    """Records per test its seconds, whether it passed, and the lines of the watched files that it ran.

    The lines of a file are the bits of one integer."""

    def __init__(self, root: Path, watched: Sequence[str]) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self._paths = {str(root / path): path for path in watched}
        self._lines: set[tuple[str, int]] = set()
        self._entries: Counter[tuple[str, int]] = Counter()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not needs_server(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._lines.clear()
        self._entries.clear()
        test = self.tests[item.nodeid] = {"seconds": 0.0, "passed": True, "lines": {}}
        began = time.perf_counter()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            test["seconds"] = round(time.perf_counter() - began, 4)
            test["lines"] = self._bits()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.tests[report.nodeid]["passed"] = False

    def _bits(self) -> dict[str, str]:
        bits: defaultdict[str, int] = defaultdict(int)
        for name, line in list(self._lines):
            bits[self._paths[name]] |= 1 << line
        return {path: hex(value) for path, value in bits.items()}

    def _enter(self, frame: FrameType, _event: str, _value: object) -> Any:
        code = frame.f_code
        if code.co_filename not in self._paths:
            return None
        place = code.co_filename, code.co_firstlineno
        self._entries[place] += 1
        return self._step if self._entries[place] <= TRACED_ENTRIES else None

    def _step(self, frame: FrameType, _event: str, _value: object) -> Any:
        self._lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._step
