"""The pytest plugin of Tidemill.

`@pytest.mark.tidemill` runs an async test in virtual time. It needs no other plugin.

pytest imports every installed plugin. This plugin is a package beside `tidemill`, so that test runs that do
not use it do not import Tidemill.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidemill import Tidemill
    from tidemill.testing import AsyncKit, Kit, inline


_MARKER = "tidemill"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "tidemill_app", "the application the fixtures tidemill_kit and tidemill_inline work on, as module:app"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "tidemill(seed=0, start=2030-01-01): run this async test in virtual time"
    )


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Replaces each marked async test by a sync function that runs it in virtual time. It runs before the
    other plugins see the test, so pytest-asyncio and anyio leave it alone."""
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if isinstance(item, pytest.Function) and (mark := item.get_closest_marker(_MARKER)):
            _make_sync(item, mark)
    return made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raises UsageError if the tidemill mark has positional arguments or is on a unittest async test."""
    for item in items:
        if (mark := item.get_closest_marker(_MARKER)) is None:
            continue
        if mark.args:
            given = ", ".join(map(repr, mark.args))
            raise pytest.UsageError(
                f"{item.nodeid}: tidemill({given}): its arguments have names; write tidemill(seed={given})"
            )
        if _is_async(getattr(item, "obj", None)) and _is_unittest(item):
            raise pytest.UsageError(
                f"{item.nodeid}: unittest runs the async tests of its classes on a loop of its own, and "
                "@pytest.mark.tidemill cannot change that; write the test as a function"
            )


def _is_unittest(item: pytest.Item) -> bool:
    import unittest

    return issubclass(getattr(item, "cls", None) or object, unittest.TestCase)


def _is_async(obj: Any) -> bool:
    return inspect.iscoroutinefunction(obj) or inspect.iscoroutinefunction(_hypothesis_test(obj))


def _hypothesis_test(obj: Any) -> Any:
    """Returns the function inside a test that Hypothesis (`@given`) has wrapped; None for any other test."""
    return getattr(getattr(obj, "hypothesis", None), "inner_test", None)


def _make_sync(item: pytest.Function, mark: pytest.Mark) -> None:
    if inspect.iscoroutinefunction(item.obj):
        item.obj = _run_in_virtual_time(item.obj, mark)
    elif inspect.iscoroutinefunction(inner := _hypothesis_test(item.obj)):
        # Parametrised tests share the function, so it is wrapped once.
        item.obj.hypothesis.inner_test = _run_in_virtual_time(inner, mark)


def _run_in_virtual_time(test: Callable[..., Any], mark: pytest.Mark) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        from tidemill.testing import run_virtual

        run_virtual(test(*args, **kwargs), **mark.kwargs)

    return run


@pytest.fixture
def tidemill_app(request: pytest.FixtureRequest) -> Tidemill:
    """The application under test. Set `tidemill_app = module:app` in pytest's settings, or override this
    fixture."""
    target = str(request.config.getini("tidemill_app"))
    module, _, name = target.partition(":")
    if not module or not name:
        raise pytest.UsageError(
            f"tidemill_app: {target!r} names no application; write tidemill_app = module:app in pytest's "
            "settings, or a fixture tidemill_app that returns it"
        )
    app: Tidemill = getattr(importlib.import_module(module), name)
    return app


@pytest.fixture
def tidemill_kit(request: pytest.FixtureRequest, tidemill_app: Tidemill) -> Iterator[Kit | AsyncKit]:
    """A test kit: the application on an empty memory store. In an async test, await its `run_…` methods."""
    from tidemill import testing

    mark = request.node.get_closest_marker(_MARKER)
    kit = testing.kit(tidemill_app, **({} if mark is None else mark.kwargs))
    if _is_async(inspect.unwrap(request.function)):
        with kit.awaited() as awaited:
            yield awaited
    else:
        with kit as plain:
            yield plain


@pytest.fixture
def tidemill_inline(tidemill_app: Tidemill) -> Iterator[inline]:
    """Runs every job in the call that enqueues it."""
    from tidemill import testing

    with testing.inline(tidemill_app) as kit:
        yield kit
