"""What every test leaves as it found it: where log lines go is the process's, and tests share one."""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator, Iterator

import pytest
import structlog

from tidemill import logs

pytest_plugins = ["tests.servers.plugin"]

UNTOUCHED = logs._ours.settings, logs._ours.steps, logs._ours.handler


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Twelve thousand collected tests stay until the end: nothing of them is rubbish, and the collector would
    look through all of them again and again, for a third of the time that collecting takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _logs_are_put_back() -> Iterator[None]:
    """A command run in this process sets up logs for good, as it should in a process of its own. So does a
    worker of a fixture that several tests share, before any of them begins."""
    root, ours = logging.getLogger(), logs._ours
    level, handlers = root.level, list(root.handlers)
    yield
    ours.settings, ours.steps, ours.handler = UNTOUCHED
    logs._write_line._said.clear()
    root.setLevel(level)
    for handler in list(root.handlers):
        # pytest puts up handlers of its own, others for every phase of a test
        if handler not in handlers and not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)
    structlog.reset_defaults()
