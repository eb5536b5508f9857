"""Fixtures and hooks of all tests: logging is global state of the process, and is restored after every
test."""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator, Iterator

import hypothesis
import pytest
import structlog

from tidemill import logs

# Hypothesis fails an example that takes over 200 ms. On a busy machine, that says nothing about the code.
hypothesis.settings.register_profile("tidemill", deadline=None)
hypothesis.settings.load_profile("tidemill")

pytest_plugins = ["tests.servers.plugin"]

UNTOUCHED = logs._state.settings, logs._state.steps, logs._state.handler


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disables garbage collection while pytest collects the tests.

    The twelve thousand collected tests stay until the end. The collector would scan them repeatedly, for
    a third of the collection time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _logs_are_put_back() -> Iterator[None]:
    """Restores the logging configuration after each test.

    A command that runs in this process configures logging for good. So does a worker in a fixture that
    several tests share, before the first of them starts."""
    root, ours = logging.getLogger(), logs._state
    level, handlers = root.level, list(root.handlers)
    yield
    ours.settings, ours.steps, ours.handler = UNTOUCHED
    logs._write_line._last_logged.clear()
    root.setLevel(level)
    for handler in list(root.handlers):
        # pytest installs handlers for every phase of a test; keep them
        if handler not in handlers and not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)
    structlog.reset_defaults()
