"""The pytest plugin of Tidemill. It lives beside the package, so that a test run that does not use it
does not pay for importing Tidemill.

`@pytest.mark.tidemill` runs an async test in virtual time. It needs no other plugin, and where
pytest-asyncio or anyio's plugin would take async tests, a marked one is no longer async for them.
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

_MARK = "tidemill"


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
    """Last of the wrappers is the innermost: the others see the test when it is plain already. Only
    what pytest took for a test is looked at: names of a module may be proxies that raise when asked."""
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if isinstance(item, pytest.Function) and (mark := item.get_closest_marker(_MARK)):
            _make_plain(item, mark)
    return made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A mark that would do nothing, or not what it says, is refused."""
    for item in items:
        if (mark := item.get_closest_marker(_MARK)) is None:
            continue
        if mark.args:
            given = ", ".join(map(repr, mark.args))
            raise pytest.UsageError(
                f"{item.nodeid}: tidemill({given}): its arguments have names; write tidemill(seed={given})"
            )
        if _is_async(getattr(item, "obj", None)) and _is_of_unittest(item):
            raise pytest.UsageError(
                f"{item.nodeid}: unittest runs the async tests of its classes on a loop of its own, and "
                "@pytest.mark.tidemill cannot change that; write the test as a function"
            )


def _is_of_unittest(item: pytest.Item) -> bool:
    import unittest

    return issubclass(getattr(item, "cls", None) or object, unittest.TestCase)


def _is_async(obj: Any) -> bool:
    return inspect.iscoroutinefunction(obj) or inspect.iscoroutinefunction(_drawn(obj))


def _drawn(obj: Any) -> Any:
    """The test inside one whose arguments Hypothesis draws."""
    return getattr(getattr(obj, "hypothesis", None), "inner_test", None)


def _make_plain(item: pytest.Function, mark: pytest.Mark) -> None:
    if inspect.iscoroutinefunction(item.obj):
        item.obj = _in_virtual_time(item.obj, mark)
    elif inspect.iscoroutinefunction(inner := _drawn(item.obj)):  # parametrised tests share it
        item.obj.hypothesis.inner_test = _in_virtual_time(inner, mark)


def _in_virtual_time(test: Callable[..., Any], mark: pytest.Mark) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        from tidemill.testing import run_virtual

        run_virtual(test(*args, **kwargs), **mark.kwargs)

    return run


@pytest.fixture
def tidemill_app(request: pytest.FixtureRequest) -> Tidemill:
    """The application under test; override it in conftest.py, or name it in pytest's settings."""
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
    """The application on a fresh store in memory. In an async test its `run_…` are awaited."""
    from tidemill import testing

    mark = request.node.get_closest_marker(_MARK)
    kit = testing.kit(tidemill_app, **({} if mark is None else mark.kwargs))
    if _is_async(inspect.unwrap(request.function)):
        with kit.awaited() as awaited:
            yield awaited
    else:
        with kit as plain:
            yield plain


@pytest.fixture
def tidemill_inline(tidemill_app: Tidemill) -> Iterator[inline]:
    """Every job runs where it is enqueued."""
    from tidemill import testing

    with testing.inline(tidemill_app) as kit:
        yield kit
